package apiindex

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// follower takes into an index what a watch brings: all objects between begin and sweep, then changes.
type follower[T client.Object] struct {
	begin, sweep func()
	take         func(object T, deleted bool)
}

func (f follower[T]) Begin() { f.begin() }

func (f follower[T]) Take(_ context.Context, object T, deleted bool) error {
	f.take(object, deleted)
	return nil
}

func (f follower[T]) Complete(string) { f.sweep() }

func (follower[T]) Saw(string) {}

func (follower[T]) End() {}

func following[T client.Object](reader *storage.Reader[T], into follower[T]) *storage.Following[T] {
	return storage.NewFollowing(reader.Resource(), reader.WatchAll, storage.Follower[T](into))
}

func keyOf(object client.Object) controller.Key {
	return controller.Key{Cluster: logicalcluster.Of(object), Name: object.GetName()}
}
