package workspacetype

import (
	"context"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/workspacepath"
)

// Resolver resolves paths to logical clusters and workspace types. It keeps no state.
type Resolver struct {
	reader Reader
}

// NewResolver returns a resolver over a reader.
func NewResolver(reader Reader) *Resolver { return &Resolver{reader: reader} }

// Locate returns the logical cluster of a path in a reference between objects: the first segment is the name of a
// cluster ("user:<name>" for that of a home workspace), each further one a workspace in the cluster before it, also an
// unavailable one. A path of one segment is returned as is, whether or not that cluster exists.
//
// If the path does not exist it returns a NotFound error of workspaces.tenancy.kcp.io, which wraps
// workspacepath.ErrRemote if the path leaves this shard.
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

// CanonicalPath returns the path of a logical cluster in the workspace tree, or its name if it is not in the tree. It
// returns a NotFound error for a cluster that does not exist.
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
