// Package workspacepath resolves workspace paths: the first segment is the name of a logical cluster ("user:<name>" for
// a home workspace), each further one a Workspace in the previous logical cluster. Only the shard of a logical cluster
// has its Workspaces, so that resolution may have to stop at another shard. Callers determine how workspaces are read,
// and how unavailable and mounted ones are handled.
package workspacepath

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// ErrRemote means that a path leads through a logical cluster of another shard, so that this shard cannot resolve it.
// Errors that wrap it are also Kubernetes NotFound errors.
var ErrRemote = errors.New("the path leads through a logical cluster of another shard")

// IsHome reports whether a path is the common first segment of the paths of home workspaces.
func IsHome(path logicalcluster.Path) bool { return path.String() == logicalcluster.HomePrefix }

// Split returns the logical cluster at the start of a path and the names of the workspaces below it. It fails with a
// NotFound error for a path that does not start with one logical cluster.
func Split(path logicalcluster.Path) (logicalcluster.Name, []string, error) {
	segments := path.Segments()
	switch {
	case len(segments) == 0 || path == logicalcluster.Wildcard.Path():
		return logicalcluster.Name{}, nil, NewNotFound(path)
	case len(segments) >= 2 && segments[0] == logicalcluster.HomePrefix:
		return logicalcluster.HomeName(segments[1]), segments[2:], nil
	}
	cluster, err := logicalcluster.ParseName(segments[0])
	if err != nil {
		return logicalcluster.Name{}, nil, NewNotFound(path)
	}
	return cluster, segments[1:], nil
}

// NewNotFound returns the error for a path that does not resolve.
func NewNotFound(path logicalcluster.Path) error {
	return apierrors.NewNotFound(tenancyv1alpha1.Resource("workspaces"), path.String())
}

// IsResolvable reports whether a workspace has a logical cluster, so that paths through it resolve.
func IsResolvable(workspace *tenancyv1alpha1.Workspace) bool {
	return workspace.Status.Phase != corev1alpha1.LogicalClusterPhaseScheduling && workspace.Spec.Cluster != ""
}

// IsUnavailable reports whether a workspace is in phase Unavailable.
func IsUnavailable(workspace *tenancyv1alpha1.Workspace) bool {
	return workspace.Status.Phase == corev1alpha1.LogicalClusterPhaseUnavailable
}

// Step is one workspace on a path.
type Step struct {
	// Cluster is the logical cluster that contains the workspace.
	Cluster   logicalcluster.Name
	Workspace *tenancyv1alpha1.Workspace
	// Last is set for the last workspace of the path.
	Last bool
}

// Walker resolves paths with functions of the caller.
type Walker struct {
	// GetWorkspace reads a workspace of a logical cluster, or fails with a Kubernetes NotFound error.
	GetWorkspace func(ctx context.Context, in logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error)
	// IsLocal reports whether a logical cluster is on this shard. It is called for one in which a workspace was not
	// found.
	IsLocal func(ctx context.Context, cluster logicalcluster.Name) (bool, error)
	// Visit is called for every workspace of the path, resolvable or not. An error stops the resolution.
	Visit func(Step) error
}

// Walk returns the logical cluster of a path. It may not exist: a path of one segment is returned unchanged. Walk fails
// with a NotFound error of workspaces.tenancy.kcp.io for a path that does not resolve (yet). The error wraps ErrRemote
// if the path leads to another shard.
func (w Walker) Walk(ctx context.Context, path logicalcluster.Path) (logicalcluster.Name, error) {
	cluster, rest, err := Split(path)
	if err != nil {
		return logicalcluster.Name{}, err
	}
	for i, name := range rest {
		workspace, err := w.GetWorkspace(ctx, cluster, name)
		if apierrors.IsNotFound(err) {
			return logicalcluster.Name{}, w.notFoundError(ctx, path, cluster)
		}
		if err != nil {
			return logicalcluster.Name{}, fmt.Errorf("resolving %q: reading workspace %q in %q: %w", path, name, cluster, err)
		}
		if err := w.Visit(Step{Cluster: cluster, Workspace: workspace, Last: i == len(rest)-1}); err != nil {
			return logicalcluster.Name{}, err
		}
		if !IsResolvable(workspace) {
			return logicalcluster.Name{}, NewNotFound(path)
		}
		if cluster, err = logicalcluster.ParseName(workspace.Spec.Cluster); err != nil {
			return logicalcluster.Name{}, fmt.Errorf("resolving %q: workspace %q: %w", path, name, err)
		}
	}
	return cluster, nil
}

func (w Walker) notFoundError(ctx context.Context, path logicalcluster.Path, in logicalcluster.Name) error {
	local, err := w.IsLocal(ctx, in)
	if err != nil {
		return fmt.Errorf("resolving %q: %w", path, err)
	}
	if !local {
		return fmt.Errorf("%w: %w", ErrRemote, NewNotFound(path))
	}
	return NewNotFound(path)
}
