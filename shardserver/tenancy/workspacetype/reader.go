// Package workspacetype finds the type of a workspace and says what follows from it: the types it extends, which
// initializers and terminators its workspaces get, and which types may stand below which.
//
// It reads and decides. It must not write, know about requests, users or permissions (that is admission), or about
// scheduling.
package workspacetype

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var (
	logicalClusters = corev1alpha1.Resource("logicalclusters")
	workspaces      = tenancyv1alpha1.Resource("workspaces")
	workspaceTypes  = tenancyv1alpha1.Resource("workspacetypes")
)

// Reader is where a Resolver reads. Methods that return an object fail with a Kubernetes NotFound error for what does
// not exist, and with ServiceUnavailable for what may exist on a shard of which nothing is known yet. What is returned is
// shared: copy before changing.
type Reader interface {
	// LogicalCluster returns the object that makes the cluster exist, on whatever shard.
	LogicalCluster(ctx context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error)
	// Workspace returns a workspace by name from the cluster of its parent, if that is on this shard.
	Workspace(ctx context.Context, parent logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error)
	// WorkspaceType returns a type by name from the cluster that holds it, on whatever shard.
	WorkspaceType(ctx context.Context, cluster logicalcluster.Name, name string) (*tenancyv1alpha1.WorkspaceType, error)
	// ListByPath returns the clusters that say that a reference leads to a type of theirs. It may not know the youngest types.
	ListByPath(reference Reference) []logicalcluster.Name
	// ListByPathLatest is ListByPath for what ListByPath does not know: it knows every type of this shard.
	ListByPathLatest(ctx context.Context, reference Reference) ([]logicalcluster.Name, error)
	// IsLocal tells whether a cluster is on this shard.
	IsLocal(ctx context.Context, cluster logicalcluster.Name) (bool, error)
	// CheckSynced returns nil if the types of all shards are known, else a ServiceUnavailable error.
	CheckSynced() error
}

// NewConsistentReader returns the catalog of what is stored on this shard, and of what others have published. It asks storage itself
// before it says that something does not exist: a type and its first workspace are often created in one breath.
func NewConsistentReader(registry *storage.Registry, index *Index) Reader {
	return newStorageReader(registry, index, true)
}

// NewCachedReader is Stored without the look into storage: for those who must not be able to make the server read from it.
func NewCachedReader(registry *storage.Registry, index *Index) Reader {
	return newStorageReader(registry, index, false)
}

type storageReader struct {
	*Index
	registry   *storage.Registry
	latest     bool
	clusters   *storage.Reader[*corev1alpha1.LogicalCluster]
	workspaces *storage.Reader[*tenancyv1alpha1.Workspace]
	types      *storage.Reader[*tenancyv1alpha1.WorkspaceType]
}

func newStorageReader(registry *storage.Registry, index *Index, latest bool) *storageReader {
	return &storageReader{
		Index: index, registry: registry, latest: latest,
		clusters:   storage.NewReader[*corev1alpha1.LogicalCluster](registry, logicalClusters).Global(),
		workspaces: storage.NewReader[*tenancyv1alpha1.Workspace](registry, workspaces),
		types:      storage.NewReader[*tenancyv1alpha1.WorkspaceType](registry, workspaceTypes).Global(),
	}
}

func (c *storageReader) LogicalCluster(ctx context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	return read(ctx, c.clusters, cluster, corev1alpha1.LogicalClusterName, c.latest)
}

func (c *storageReader) Workspace(ctx context.Context, parent logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error) {
	return read(ctx, c.workspaces, parent, name, c.latest)
}

func (c *storageReader) WorkspaceType(ctx context.Context, cluster logicalcluster.Name, name string) (*tenancyv1alpha1.WorkspaceType, error) {
	return read(ctx, c.types, cluster, name, c.latest)
}

func (c *storageReader) ListByPathLatest(ctx context.Context, reference Reference) ([]logicalcluster.Name, error) {
	if !c.latest {
		return nil, nil
	}
	all, err := storage.NewReader[*tenancyv1alpha1.WorkspaceType](c.registry, workspaceTypes).ListLatest(logicalcluster.With(ctx, logicalcluster.Wildcard), "", nil)
	if err != nil {
		return nil, fmt.Errorf("listing workspace types: %w", err)
	}
	var found []logicalcluster.Name
	for _, object := range all {
		if cluster := logicalcluster.Of(object); object.Name == reference.Name && canonicalPath(object, cluster) == reference.Path {
			found = append(found, cluster)
		}
	}
	return found, nil
}

func (c *storageReader) IsLocal(ctx context.Context, cluster logicalcluster.Name) (bool, error) {
	return c.registry.IsLocal(ctx, cluster)
}

func (c *storageReader) CheckSynced() error {
	if err := c.registry.RemoteStore().CheckSynced(workspaceTypes); err != nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("it is not known yet which workspace types other shards have: %v", err))
	}
	return nil
}

func read[T runtime.Object](ctx context.Context, reader *storage.Reader[T], cluster logicalcluster.Name, name string, latest bool) (T, error) {
	ctx = logicalcluster.With(ctx, cluster)
	obj, err := reader.Get(ctx, "", name)
	if latest && apierrors.IsNotFound(err) {
		return reader.GetLatest(ctx, "", name)
	}
	return obj, err
}
