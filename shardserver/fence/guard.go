package fence

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var _ storage.Guard = (*Fence)(nil)

const (
	// messageUnregistered is the text of refusals while the replica does not know that it is registered.
	messageUnregistered = "this replica of the shard is not registered in etcd: writes are refused until it is"
	// messageUnconfirmed is the text of refusals while a restored shard does not know which of its logical clusters other shards have.
	messageUnconfirmed = "the shard was restored, and does not know yet which logical clusters other shards have got since the backup; its Shard has the condition MovesKnown"
	// messageLate is the text of the error of a write that may have been stored after the lease.
	messageLate = "this replica of the shard was not registered in etcd any more when the write ended: whether it is stored is unknown"
)

// revisions are the revision that the informer has reached, and the one of the registration.
type revisions struct{ seen, registered atomic.Int64 }

// caughtUp reports whether the informer knows every pause that did not wait for this replica.
func (r *revisions) caughtUp() bool { return r.seen.Load() >= r.registered.Load() }

// see sets the revision that the informer has reached.
func (r *revisions) see(resourceVersion string) {
	if revision, err := storage.ParseRevision(resourceVersion); err == nil && int64(revision) > r.seen.Load() {
		r.seen.Store(int64(revision))
	}
}

// Enter implements storage.Guard. It counts the write before it reads any state, so that a pause that begins meanwhile
// waits for the write.
//
// A write that ends while the lease is valid under which it began has been stored before a pause that did not wait for this replica.
// Any other write may have been stored after the copy: it is not acknowledged.
func (f *Fence) Enter(ctx context.Context, cluster logicalcluster.Name) (leave func() error, err error) {
	if cluster.IsSystem() || IsMover(ctx) {
		return func() error { return nil }, nil
	}
	if !f.Answers(cluster) {
		return nil, newRefusal(ctx, messageUnconfirmed)
	}
	if !f.states.enter(cluster) {
		return nil, newRefusal(ctx, Message)
	}
	lease, registered := f.replica.validLease(time.Now())
	if !registered {
		f.states.leave(cluster)
		return nil, newRefusal(ctx, messageUnregistered)
	}
	if err := f.check(ctx, cluster); err != nil {
		f.states.leave(cluster)
		return nil, err
	}
	return func() error {
		defer f.states.leave(cluster)
		if at, registered := f.replica.validLease(time.Now()); !registered || at != lease {
			return apierrors.NewTimeoutError(messageLate, 0)
		}
		return nil
	}, nil
}

// check refuses a write that the counted states cannot decide about.
func (f *Fence) check(ctx context.Context, cluster logicalcluster.Name) error {
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
	case movestate.Of(stored.Annotations) != movestate.Open:
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

// IsExempt implements storage.Guard. Front proxies and controllers read from LogicalClusters which shard has taken over; a list of
// them contains no other objects.
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

// Confirm ends the refusals of a restored shard. Those logical clusters that other shards have must be hidden before.
func (f *Fence) Confirm() { f.unconfirmed.Store(false) }

// IsConfirmed reports whether the shard was not restored, or Confirm was called.
func (f *Fence) IsConfirmed() bool { return !f.unconfirmed.Load() }

// Answers reports whether a restored shard knows that no other shard has a logical cluster. Some never leave their shard.
func (f *Fence) Answers(cluster logicalcluster.Name) bool {
	return f.IsConfirmed() || cluster == logicalcluster.Root || cluster.IsSystem()
}

// Outdated returns the number of logical clusters of which this shard has a state of before they moved.
func (f *Fence) Outdated() int {
	if f.states.hidden.Load() == 0 {
		return 0
	}
	return len(f.states.all(func(m moving) bool { return m.outdated && m.gone.IsZero() }))
}

// Lacks implements storage.Guard.
func (f *Fence) Lacks(ctx context.Context, cluster logicalcluster.Name) bool {
	return f.states.arrives(cluster) && !IsMover(ctx)
}

// Subscribe implements storage.Guard.
func (f *Fence) Subscribe() (<-chan storage.HiddenChange, func()) { return f.states.subscribe() }

// ChangedAt implements storage.Guard.
func (f *Fence) ChangedAt() int64 { return f.shown.at() }

// HasEpochs implements storage.Guard.
func (f *Fence) HasEpochs() bool { return f.states.moved.Load() > 0 }

// Epoch implements storage.Guard.
func (f *Fence) Epoch(cluster logicalcluster.Name) uint64 { return f.states.epoch(cluster) }

// EpochIn implements storage.Guard.
func (f *Fence) EpochIn(annotations map[string]string) uint64 { return EpochOf(annotations) }

// AwaitEpoch returns when the storage uses the epoch that the annotations of a LogicalCluster express, or the context's error.
// The watch cache may have a LogicalCluster before the informer of this package does.
func (f *Fence) AwaitEpoch(ctx context.Context, cluster logicalcluster.Name, annotations map[string]string) error {
	epoch := EpochOf(annotations)
	if epoch == 0 {
		return nil
	}
	return f.states.awaitEpoch(ctx, cluster, epoch)
}

// newInformer returns the informer that sets the states.
func (f *Fence) newInformer() *informer.Informer[*corev1alpha1.LogicalCluster] {
	set := func(_ context.Context, cluster *corev1alpha1.LogicalCluster) error {
		f.states.set(logicalcluster.Of(cluster), movingOf(cluster))
		f.revision.see(cluster.ResourceVersion)
		return nil
	}
	return informer.NewWithHandler(logicalClusters, f.reader.WatchAll, informer.EventHandler[*corev1alpha1.LogicalCluster]{
		OnReplace: func(_ context.Context, clusters []*corev1alpha1.LogicalCluster, resourceVersion string) error {
			existing := map[logicalcluster.Name]moving{}
			for _, cluster := range clusters {
				existing[logicalcluster.Of(cluster)] = movingOf(cluster)
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

func movingOf(cluster *corev1alpha1.LogicalCluster) moving {
	revision, err := storage.ParseRevision(cluster.ResourceVersion)
	if err != nil {
		revision = 0
	}
	_, outdated := cluster.Annotations[corev1alpha1.OutdatedAnnotationKey]
	return moving{state: movestate.Of(cluster.Annotations), epoch: EpochOf(cluster.Annotations), revision: int64(revision), outdated: outdated}
}
