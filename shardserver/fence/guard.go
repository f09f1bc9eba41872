package fence

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var _ storage.Guard = (*Fence)(nil)

// messageUnregistered is the text of refusals while the replica does not know that it is registered.
const messageUnregistered = "this replica of the shard is not registered in etcd: writes are refused until it is"

// revisions are the revision that the informer has reached, and the one of the registration.
type revisions struct{ seen, registered atomic.Int64 }

// caughtUp reports whether the informer knows every pause that did not wait for this replica.
func (r *revisions) caughtUp() bool { return r.seen.Load() >= r.registered.Load() }

// see sets the revision that the informer has reached.
func (r *revisions) see(resourceVersion string) {
	if revision, err := strconv.ParseInt(resourceVersion, 10, 64); err == nil && revision > r.seen.Load() {
		r.seen.Store(revision)
	}
}

// Enter implements storage.Guard. It counts the write before it looks at anything, so that a pause that begins meanwhile
// waits for the write.
func (f *Fence) Enter(ctx context.Context, cluster logicalcluster.Name) (leave func(), err error) {
	if cluster.IsSystem() || IsMover(ctx) {
		return func() {}, nil
	}
	if !f.states.enter(cluster) {
		return nil, newRefusal(ctx, Message)
	}
	if err := f.check(ctx, cluster); err != nil {
		f.states.leave(cluster)
		return nil, err
	}
	return func() { f.states.leave(cluster) }, nil
}

// check refuses a write that the counted states cannot decide about.
func (f *Fence) check(ctx context.Context, cluster logicalcluster.Name) error {
	if !f.replica.isRegistered(time.Now()) {
		return newRefusal(ctx, messageUnregistered)
	}
	if f.revision.caughtUp() {
		return nil
	}
	if _, err := f.cfg.Registry.Get(logicalClusters); err != nil {
		return nil // no API is installed yet: the shard prepares its own objects
	}
	stored, err := f.reader.GetLatest(logicalcluster.With(ctx, cluster), "", corev1alpha1.LogicalClusterName)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading whether writes to logical cluster %q are paused: %w", cluster, err)
	case StateOf(stored.Annotations) != Open:
		return newRefusal(ctx, Message)
	}
	return nil
}

// Restricts implements storage.Guard.
func (f *Fence) Restricts(ctx context.Context) (bool, error) {
	if IsMover(ctx) {
		return false, nil
	}
	return true, f.WaitForSync(ctx)
}

// IsExempt implements storage.Guard. LogicalClusters tell front proxies and controllers which shard has taken over; a list of
// them shows nothing of the content.
func (f *Fence) IsExempt(resource schema.GroupResource) bool { return resource == logicalClusters }

// HidesAny implements storage.Guard.
func (f *Fence) HidesAny() bool { return f.states.hidden.Load() > 0 }

// Hides implements storage.Guard.
func (f *Fence) Hides(cluster logicalcluster.Name) bool { return f.states.hides(cluster) }

// HiddenClusters returns the number of logical clusters that other shards serve, and of which this one has a LogicalCluster. Without a
// fence there are none.
func (f *Fence) HiddenClusters() int {
	if f == nil {
		return 0
	}
	return f.states.hiddenClusters()
}

// Lacks implements storage.Guard.
func (f *Fence) Lacks(ctx context.Context, cluster logicalcluster.Name) bool {
	return f.states.arrives(cluster) && !IsMover(ctx)
}

// Subscribe implements storage.Guard.
func (f *Fence) Subscribe() (<-chan storage.HiddenChange, func()) { return f.states.subscribe() }

// newInformer returns the informer that sets the states.
func (f *Fence) newInformer() *informer.Informer[*corev1alpha1.LogicalCluster] {
	set := func(_ context.Context, cluster *corev1alpha1.LogicalCluster) error {
		f.states.set(logicalcluster.Of(cluster), StateOf(cluster.Annotations), revisionOf(cluster))
		f.revision.see(cluster.ResourceVersion)
		return nil
	}
	return informer.NewWithHandler(logicalClusters, f.reader.WatchAll, informer.EventHandler[*corev1alpha1.LogicalCluster]{
		OnReplace: func(_ context.Context, clusters []*corev1alpha1.LogicalCluster, resourceVersion string) error {
			existing := map[logicalcluster.Name]moving{}
			for _, cluster := range clusters {
				existing[logicalcluster.Of(cluster)] = moving{state: StateOf(cluster.Annotations), revision: revisionOf(cluster)}
			}
			f.states.replace(existing, time.Now())
			f.revision.see(resourceVersion)
			return nil
		},
		OnAdd:    set,
		OnUpdate: set,
		OnDelete: func(_ context.Context, cluster *corev1alpha1.LogicalCluster) error {
			f.states.remove(logicalcluster.Of(cluster), time.Now())
			f.revision.see(cluster.ResourceVersion)
			return nil
		},
		OnBookmark: f.revision.see,
	})
}

func revisionOf(cluster *corev1alpha1.LogicalCluster) int64 {
	revision, err := strconv.ParseInt(cluster.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return revision
}
