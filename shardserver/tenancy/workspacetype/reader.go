// Package workspacetype resolves the type of a workspace and derives from it the types that it extends, the
// initializers and terminators of its workspaces, and which types are allowed below which.
//
// It only reads. Requests, users and permissions belong to package admission, and scheduling to package scheduling.
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

// Reader provides the objects to a Resolver. Methods that return an object return a Kubernetes NotFound error if it
// does not exist, and ServiceUnavailable if it may exist on another shard that is not synced. Returned objects are
// shared and must be copied before they are modified.
type Reader interface {
	// LogicalCluster returns the LogicalCluster object of a cluster on any shard.
	LogicalCluster(ctx context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error)
	// Workspace returns a workspace by name from the cluster of its parent, if that is on this shard.
	Workspace(ctx context.Context, parent logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error)
	// WorkspaceType returns a type by name from its cluster on any shard.
	WorkspaceType(ctx context.Context, cluster logicalcluster.Name, name string) (*tenancyv1alpha1.WorkspaceType, error)
	// ListByPath returns the clusters with a type that is annotated with the path and name of a reference. It may lack the
	// newest types.
	ListByPath(reference Reference) []logicalcluster.Name
	// ListByPathLatest is ListByPath with a consistent read of the types of this shard.
	ListByPathLatest(ctx context.Context, reference Reference) ([]logicalcluster.Name, error)
	// IsLocal reports whether a cluster is on this shard.
	IsLocal(ctx context.Context, cluster logicalcluster.Name) (bool, error)
	// CheckSynced returns nil if the types of all shards are synced, else a ServiceUnavailable error.
	CheckSynced() error
}

// NewConsistentReader returns a reader of the objects of this shard and of those that other shards publish. It reads
// storage before it returns NotFound, as a type and its first workspace are often created in quick succession.
func NewConsistentReader(registry *storage.Registry, index *Index) Reader {
	return newStorageReader(registry, index, true)
}

// NewCachedReader is NewConsistentReader without reads of storage, for callers that must not be able to cause them.
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

func (s *storageReader) LogicalCluster(ctx context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	return read(ctx, s.clusters, cluster, corev1alpha1.LogicalClusterName, s.latest)
}

func (s *storageReader) Workspace(ctx context.Context, parent logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error) {
	return read(ctx, s.workspaces, parent, name, s.latest)
}

func (s *storageReader) WorkspaceType(ctx context.Context, cluster logicalcluster.Name, name string) (*tenancyv1alpha1.WorkspaceType, error) {
	return read(ctx, s.types, cluster, name, s.latest)
}

func (s *storageReader) ListByPathLatest(ctx context.Context, reference Reference) ([]logicalcluster.Name, error) {
	if !s.latest {
		return nil, nil
	}
	all, err := storage.NewReader[*tenancyv1alpha1.WorkspaceType](s.registry, workspaceTypes).ListLatest(logicalcluster.With(ctx, logicalcluster.Wildcard), "", nil)
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

func (s *storageReader) IsLocal(ctx context.Context, cluster logicalcluster.Name) (bool, error) {
	return s.registry.IsLocal(ctx, cluster)
}

func (s *storageReader) CheckSynced() error {
	if err := s.registry.RemoteStore().CheckSynced(workspaceTypes); err != nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the workspace types of other shards are not synced: %v", err))
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
