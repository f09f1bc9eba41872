package dynamic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// maxClusters is how many logical clusters have something prepared at a time, per plug-in. Beyond it the one that was
	// not used for longest is prepared anew at its next request.
	maxClusters = 256
	// maxCompiled is how many different policies are kept compiled, per plug-in.
	maxCompiled = 256
	// maxIdle is how long anything is kept after its last use.
	maxIdle = 10 * time.Minute
)

var errNoCluster = errors.New("no single logical cluster in the request")

// stored is an object as the watch cache has it.
type stored interface {
	runtime.Object
	metav1.Object
}

// revision identifies one state of one object.
type revision struct {
	uid     types.UID
	version string
}

func appendRevisions[T stored](revisions []revision, objects []T) []revision {
	for _, object := range objects {
		revisions = append(revisions, revision{object.GetUID(), object.GetResourceVersion()})
	}
	return revisions
}

// prepared is what was made of a logical cluster's configurations in one state.
type prepared[T any] struct {
	revisions []revision
	value     T
}

// preparations keeps what was made of configurations, by logical cluster, for as long as they stay what they are.
type preparations[T any] struct {
	kept *recent[logicalcluster.Name, prepared[T]]
}

func newPreparations[T any]() preparations[T] {
	return preparations[T]{newRecent[logicalcluster.Name, prepared[T]](maxClusters, maxIdle)}
}

// get returns what was made of the configurations in this state, or makes it. Requests that come at once, right after
// a change, may each make their own; the last one is kept.
func (p preparations[T]) get(cluster logicalcluster.Name, revisions []revision, prepare func() (T, error)) (T, error) {
	if known, ok := p.kept.get(cluster); ok && slices.Equal(known.revisions, revisions) {
		return known.value, nil
	}
	value, err := prepare()
	if err == nil {
		p.kept.set(cluster, prepared[T]{revisions, value})
	}
	return value, err
}

// none notes that the logical cluster has no configurations.
func (p preparations[T]) none(cluster logicalcluster.Name) { p.kept.remove(cluster) }

// clusterOf returns the logical cluster of a request, which is one, not all.
func clusterOf(ctx context.Context) (logicalcluster.Name, error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster.IsWildcard() {
		return cluster, apierrors.NewInternalError(errNoCluster)
	}
	return cluster, nil
}

// unread is the answer to a request whose webhooks and policies cannot be read: it is not admitted without them. Those of
// another shard may not be known yet, which clients try again.
func unread(err error) error {
	if apierrors.IsServiceUnavailable(err) {
		return apierrors.NewServiceUnavailable("the webhooks and policies of who provides this API are not known yet")
	}
	return apierrors.NewInternalError(err)
}

// readAll reads all configurations of a kind in the context's logical cluster, ordered by name.
func readAll[T stored](ctx context.Context, reader *storage.Reader[T]) ([]T, error) {
	found, err := reader.List(ctx, "", nil)
	if err != nil {
		return nil, fmt.Errorf("reading the %s of the workspace: %w", reader.Resource().Resource, err)
	}
	return found, nil
}
