package publisher

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Restored is what a restored shard knows about its logical clusters, of which others may have got some since the backup. The zero value is that of a
// shard from which none move.
type Restored struct {
	// Answers reports whether this shard knows that no other one has a logical cluster.
	Answers func(logicalcluster.Name) bool
	// IsConfirmed reports whether that is so for all of them.
	IsConfirmed func() bool
	// Confirmed has an event when IsConfirmed has become true.
	Confirmed *controller.Changes
}

// AwaitCluster returns a source whose objects stay as they are published until this shard knows that no other one has their logical cluster.
func (r Restored) AwaitCluster(source Source) Source {
	return r.await(source, func(key controller.Request) bool { return r.Answers(key.ClusterName) })
}

// AwaitAll returns a source whose objects stay as they are published until this shard knows that for all of its logical clusters. It is for objects
// that are derived from several: what the backup has of one that has moved would be in them. A cache that has lost them gets those of the backup
// meanwhile, because their readers would treat the absence of all of them as the end of what this shard has; they are published once, and stay then. What
// depends on objects of other shards that are not synced is absent until these are, and does not keep the report of this shard from being complete: restored
// shards would wait for each other.
func (r Restored) AwaitAll(source Source) Source {
	if r.Confirmed == nil {
		return source
	}
	awaiting, desired := r.await(source, func(controller.Request) bool { return r.IsConfirmed() }), source.Desired
	awaiting.refill = func(ctx context.Context, key controller.Request) (runtime.Object, error) {
		confirmed := r.IsConfirmed()
		object, err := desired(ctx, key)
		if !confirmed && storage.IsNotSynced(err) {
			return nil, ErrUnchanged
		}
		return object, err
	}
	return awaiting
}

func (r Restored) await(source Source, isKnown func(controller.Request) bool) Source {
	if r.Confirmed == nil {
		return source
	}
	desired, input := source.Desired, r.Confirmed.Source(corev1alpha1.Resource("logicalclusters"))
	input.MapFunc = func(watch.Event) []controller.Request { return []controller.Request{allOf} } // what stayed is computed again
	source.each = controller.NewChanges(nil)
	source.Inputs = slices.Concat([]controller.Source{input, source.each.Source(source.Resource)}, source.Inputs)
	source.Desired = func(ctx context.Context, key controller.Request) (runtime.Object, error) {
		if !isKnown(key) {
			return nil, ErrUnchanged
		}
		return desired(ctx, key)
	}
	return source
}
