// Package paths walks along workspace paths: the first segment is the name of a logical cluster ("user:<name>" that of
// a home), every further one a Workspace in the logical cluster before. Workspaces are known to the shard of their
// logical cluster alone, so a walk may have to end half way. What is read, and what an unavailable or mounted workspace
// means, is for the caller to say.
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

// homeSegment is the first segment of the canonical paths of home workspaces, "user:<name>". It is no cluster.
const homeSegment = "user"

// ErrRemote says that a path leads through a logical cluster that is not on this shard, so that nobody here knows
// how it goes on. Errors that wrap it are Kubernetes NewNotFound errors, too.
var ErrRemote = errors.New("the path leads through a logical cluster of another shard")

// IsHome tells whether a path of one segment is only the beginning of the paths of home workspaces.
func IsHome(path logicalcluster.Path) bool { return path.String() == homeSegment }

// Split returns the logical cluster in which a path begins, and the workspaces it goes through from there. It fails with
// a NewNotFound error for what is no path of one logical cluster.
func Split(path logicalcluster.Path) (logicalcluster.Name, []string, error) {
	segments := path.Segments()
	switch {
	case len(segments) == 0 || path == logicalcluster.Wildcard.Path():
		return logicalcluster.Name{}, nil, NewNotFound(path)
	case len(segments) >= 2 && segments[0] == homeSegment:
		return logicalcluster.HomeName(segments[1]), segments[2:], nil
	}
	cluster, err := logicalcluster.ParseName(segments[0])
	if err != nil {
		return logicalcluster.Name{}, nil, NewNotFound(path)
	}
	return cluster, segments[1:], nil
}

// NewNotFound is the error for a path that leads nowhere.
func NewNotFound(path logicalcluster.Path) error {
	return apierrors.NewNotFound(tenancyv1alpha1.Resource("workspaces"), path.String())
}

// IsResolvable tells whether paths lead through a workspace yet.
func IsResolvable(workspace *tenancyv1alpha1.Workspace) bool {
	return workspace.Status.Phase != corev1alpha1.LogicalClusterPhaseScheduling && workspace.Spec.Cluster != ""
}

// IsUnavailable tells whether a workspace cannot be entered now.
func IsUnavailable(workspace *tenancyv1alpha1.Workspace) bool {
	return workspace.Status.Phase == corev1alpha1.LogicalClusterPhaseUnavailable
}

// Step is one workspace on a path.
type Step struct {
	// Cluster is the logical cluster that holds the workspace.
	Cluster   logicalcluster.Name
	Workspace *tenancyv1alpha1.Workspace
	// Last says that the path ends with it.
	Last bool
}

// Walker says what there is on the way.
type Walker struct {
	// GetWorkspace reads a workspace of a logical cluster, or fails with a Kubernetes NewNotFound error.
	GetWorkspace func(ctx context.Context, in logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error)
	// IsLocal tells whether a logical cluster is on this shard. It is asked about those that do not have what was looked for.
	IsLocal func(ctx context.Context, cluster logicalcluster.Name) (bool, error)
	// Visit is called for every workspace on the way, whether or not paths lead through it yet; its error ends the walk.
	Visit func(Step) error
}

// Walk returns the logical cluster that a path leads to, whether or not that exists: a path of one segment is returned
// as it is. It fails with a NewNotFound error of workspaces.tenancy.kcp.io for a path that leads nowhere (yet), which wraps
// ErrRemote where it leaves this shard.
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
