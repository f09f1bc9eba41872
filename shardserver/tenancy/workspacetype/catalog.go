// Package workspacetype finds the type of a workspace and says what follows from it: the types it extends, which
// initializers and terminators its workspaces get, and which types may stand below which.
//
// It reads and decides. It must not write, know about requests, users or permissions (that is admission), or about
// scheduling.
package workspacetype

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Catalog is where a Resolver reads. Every method returns a Kubernetes NotFound error for what does not exist.
// What is returned is shared: copy before changing.
type Catalog interface {
	// LogicalCluster returns the object that makes the cluster exist.
	LogicalCluster(ctx context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error)
	// Workspace returns a workspace by name from the cluster of its parent.
	Workspace(ctx context.Context, parent logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error)
	// WorkspaceType returns a type by name from the cluster that holds it.
	WorkspaceType(ctx context.Context, cluster logicalcluster.Name, name string) (*tenancyv1alpha1.WorkspaceType, error)
}

// Local returns the catalog of what is stored on this shard.
func Local(registry *storage.Registry) Catalog {
	return &local{
		clusters:   storage.NewReader[*corev1alpha1.LogicalCluster](registry, corev1alpha1.Resource("logicalclusters")),
		workspaces: storage.NewReader[*tenancyv1alpha1.Workspace](registry, tenancyv1alpha1.Resource("workspaces")),
		types:      storage.NewReader[*tenancyv1alpha1.WorkspaceType](registry, tenancyv1alpha1.Resource("workspacetypes")),
	}
}

type local struct {
	clusters   *storage.Reader[*corev1alpha1.LogicalCluster]
	workspaces *storage.Reader[*tenancyv1alpha1.Workspace]
	types      *storage.Reader[*tenancyv1alpha1.WorkspaceType]
}

func (l *local) LogicalCluster(ctx context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	return read(ctx, l.clusters, cluster, corev1alpha1.LogicalClusterName)
}

func (l *local) Workspace(ctx context.Context, parent logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error) {
	return read(ctx, l.workspaces, parent, name)
}

func (l *local) WorkspaceType(ctx context.Context, cluster logicalcluster.Name, name string) (*tenancyv1alpha1.WorkspaceType, error) {
	return read(ctx, l.types, cluster, name)
}

// read asks the watch cache, and storage itself before it says that something does not exist: a type and its first
// workspace are often created in one breath.
func read[T runtime.Object](ctx context.Context, reader *storage.Reader[T], cluster logicalcluster.Name, name string) (T, error) {
	ctx = logicalcluster.With(ctx, cluster)
	obj, err := reader.Get(ctx, "", name)
	if apierrors.IsNotFound(err) {
		return reader.GetLatest(ctx, "", name)
	}
	return obj, err
}
