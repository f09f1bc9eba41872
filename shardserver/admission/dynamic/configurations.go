package dynamic

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// maxClusters bounds the number of logical clusters with prepared configurations, per plug-in. Least recently used
	// entries are evicted and prepared again at the next request.
	maxClusters = 256
	// maxCompiled bounds the number of different compiled policies, per plug-in.
	maxCompiled = 256
)

var errNoCluster = errors.New("no single logical cluster in the request")

// storedObject is an object of the watch cache.
type storedObject interface {
	runtime.Object
	metav1.Object
}

// revision identifies one version of one object.
type revision struct {
	uid     types.UID
	version string
}

func appendRevisions[T storedObject](revisions []revision, objects []T) []revision {
	for _, object := range objects {
		revisions = append(revisions, revision{object.GetUID(), object.GetResourceVersion()})
	}
	return revisions
}

// prepared is the result of preparing a logical cluster's configurations at some revisions.
type prepared[T any] struct {
	revisions []revision
	value     T
}

// preparedCache caches prepared configurations by logical cluster, until their revisions change.
type preparedCache[T any] struct {
	entries *lruCache[logicalcluster.Name, prepared[T]]
}

func newPreparedCache[T any]() preparedCache[T] {
	return preparedCache[T]{newLRUCache[logicalcluster.Name, prepared[T]](maxClusters)}
}

// get returns the prepared configurations of the revisions, and prepares them if needed. Concurrent requests right
// after a change may each prepare them; the last result is kept.
func (p preparedCache[T]) get(cluster logicalcluster.Name, revisions []revision, prepare func() (T, error)) (T, error) {
	if known, ok := p.entries.get(cluster); ok && slices.Equal(known.revisions, revisions) {
		return known.value, nil
	}
	value, err := prepare()
	if err == nil {
		p.entries.entries.Add(cluster, prepared[T]{revisions, value})
	}
	return value, err
}

// remove removes the entry of a logical cluster without configurations.
func (p preparedCache[T]) remove(cluster logicalcluster.Name) { p.entries.entries.Remove(cluster) }

// clusterOf returns the logical cluster of a request. A wildcard request is an error.
func clusterOf(ctx context.Context) (logicalcluster.Name, error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster.IsWildcard() {
		return cluster, apierrors.NewInternalError(errNoCluster)
	}
	return cluster, nil
}

// toReadError returns the error for a request whose webhooks and policies cannot be read: it is not admitted without
// them. ServiceUnavailable, returned while the replicas of another shard are not synced, is kept, so that clients
// retry.
func toReadError(err error) error {
	if apierrors.IsServiceUnavailable(err) {
		return apierrors.NewServiceUnavailable("the webhooks and policies of the provider of this API are not synced yet")
	}
	return apierrors.NewInternalError(err)
}

// listAll reads all configurations of a kind in the context's logical cluster, ordered by name.
func listAll[T storedObject](ctx context.Context, reader *storage.Reader[T]) ([]T, error) {
	found, err := reader.List(ctx, "", nil)
	if err != nil {
		return nil, fmt.Errorf("reading the %s of the workspace: %w", reader.Resource().Resource, err)
	}
	return found, nil
}
