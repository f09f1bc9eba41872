package rules

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// ErrNoCluster is the error of requests whose context has no logical cluster.
var ErrNoCluster = errors.New("no logical cluster in the request")

// ClusterReader reads the LogicalCluster object of the context's logical cluster.
type ClusterReader struct {
	reader *storage.Reader[*corev1alpha1.LogicalCluster]
}

// NewClusterReader returns a reader of the objects in a registry.
func NewClusterReader(registry *storage.Registry) ClusterReader {
	return ClusterReader{storage.NewReader[*corev1alpha1.LogicalCluster](registry, LogicalClusters)}
}

// Get returns the object. The NotFound error is confirmed by a consistent read from storage.
func (r ClusterReader) Get(ctx context.Context) (*corev1alpha1.LogicalCluster, error) {
	cluster, err := r.reader.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		return r.reader.GetLatest(ctx, "", corev1alpha1.LogicalClusterName)
	}
	return cluster, err
}

// IsDeleting reports whether the logical cluster is being deleted; false if it does not exist.
func (r ClusterReader) IsDeleting(ctx context.Context) (bool, error) {
	cluster, err := r.reader.GetLatest(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && cluster.DeletionTimestamp != nil, err
}

// List returns the LogicalClusters of this shard, and those that other shards publish: clusters that have an export, a type or a cached resource.
func (r ClusterReader) List(ctx context.Context) ([]*corev1alpha1.LogicalCluster, error) {
	return r.reader.Global().List(logicalcluster.With(ctx, logicalcluster.Wildcard), "", nil)
}

// CanonicalPath returns the path of the context's logical cluster in the workspace tree, or a NotFound error if the
// logical cluster does not exist.
func (r ClusterReader) CanonicalPath(ctx context.Context) (string, error) {
	name, ok := logicalcluster.From(ctx)
	if !ok {
		return "", ErrNoCluster
	}
	cluster, err := r.Get(ctx)
	if err != nil {
		return "", err
	}
	if path := cluster.Annotations[logicalcluster.PathAnnotationKey]; path != "" {
		return path, nil
	}
	return name.String(), nil
}
