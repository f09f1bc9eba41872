package workspacetype

import (
	"context"
	"errors"
	"fmt"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/workspacepath"
)

// ErrUnavailable says that a path leads through a workspace that exists and cannot be entered now.
var ErrUnavailable = errors.New("workspace is not available")

// Resolver finds logical clusters and workspace types by path. It holds nothing but its catalog.
type Resolver struct {
	reader Reader
}

// NewResolver returns a resolver over a catalog.
func NewResolver(reader Reader) *Resolver { return &Resolver{reader: reader} }

// ClusterOf returns the logical cluster that a path leads to: its first segment is the name of a cluster
// ("user:<name>" that of a home cluster), each further one a workspace in the cluster before it. A path of one
// segment is returned as it is, whether or not that cluster exists.
//
// It fails with a NotFound error of workspaces.tenancy.kcp.io for a path that leads nowhere (yet), which wraps
// paths.ErrElsewhere where it leaves this shard, and with ErrUnavailable for one that leads through an unavailable
// workspace.
func (r *Resolver) ClusterOf(ctx context.Context, path logicalcluster.Path) (logicalcluster.Name, error) {
	return r.walk(ctx, path, func(workspace *tenancyv1alpha1.Workspace) error {
		if workspacepath.IsUnavailable(workspace) {
			return fmt.Errorf("resolving %q: workspace %q: %w", path, workspace.Name, ErrUnavailable)
		}
		return nil
	})
}

// Locate is ClusterOf for references from one object to another, which an outage on the way does not break.
func (r *Resolver) Locate(ctx context.Context, path logicalcluster.Path) (logicalcluster.Name, error) {
	return r.walk(ctx, path, func(*tenancyv1alpha1.Workspace) error { return nil })
}

// walk follows a path from workspace to workspace and calls visit for each.
func (r *Resolver) walk(ctx context.Context, path logicalcluster.Path, visit func(*tenancyv1alpha1.Workspace) error) (logicalcluster.Name, error) {
	walker := workspacepath.Walker{
		GetWorkspace: r.reader.Workspace,
		IsLocal:      r.reader.IsLocal,
		Visit:        func(step workspacepath.Step) error { return visit(step.Workspace) },
	}
	return walker.Walk(ctx, path)
}

// CanonicalPath returns the path under which a logical cluster stands in the tree, which is its own name for one
// that stands in none. It fails with a NotFound error for a cluster that does not exist.
func (r *Resolver) CanonicalPath(ctx context.Context, cluster logicalcluster.Name) (logicalcluster.Path, error) {
	logicalCluster, err := r.reader.LogicalCluster(ctx, cluster)
	if err != nil {
		return logicalcluster.Path{}, err
	}
	return canonicalPath(logicalCluster, cluster), nil
}

// canonicalPath reads the path annotation of an object in a cluster; without a usable one the path is the
// cluster's name.
func canonicalPath(obj logicalcluster.Annotated, cluster logicalcluster.Name) logicalcluster.Path {
	path, err := logicalcluster.ParsePath(obj.GetAnnotations()[logicalcluster.PathAnnotationKey])
	if err != nil || path == logicalcluster.Wildcard.Path() {
		return cluster.Path()
	}
	return path
}
