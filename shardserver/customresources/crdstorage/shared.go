package crdstorage

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

const (
	// settleTimeout is how long the first requests of a storage wait for its watch cache. Beyond it, clients are asked
	// to come again, as the stock watch cache does at once.
	settleTimeout = 3 * time.Second
	settlePoll    = 5 * time.Millisecond
)

// shared is the storage and watch cache of all clusters and contents, with two improvements over the stock ones.
//
// Its first requests but single reads wait for the watch cache to fill: a definition is often used in the moment it is
// established, which opens its storage, and its first client would be told to retry. A write that were older than the
// first list of the watch cache could not be watched from.
//
// A single object that was read from etcd is replaced by the one of the same version in the watch cache, if that is
// there: it knows its forms.
//
// Reads on behalf of another logical cluster (PresentedIn) show objects as its own.
type shared struct {
	storage.Interface
	cached  bool
	settled atomic.Bool
}

// settle waits once in the life of the storage. A watch cache that fills again later does as the stock one does.
func (s *shared) settle(ctx context.Context) {
	if s.settled.Load() {
		return
	}
	// Whether it came in time shows in what follows.
	_ = wait.PollUntilContextTimeout(ctx, settlePoll, settleTimeout, true, func(context.Context) (bool, error) {
		return s.settled.Load() || s.ReadinessCheck() == nil, nil
	})
	s.settled.Store(true)
}

// Create implements storage.Interface.
func (s *shared) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	s.settle(ctx)
	return s.Interface.Create(ctx, key, obj, out, ttl)
}

// GuaranteedUpdate implements storage.Interface.
func (s *shared) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object) error {
	s.settle(ctx)
	return s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cached)
}

// GetList implements storage.Interface.
func (s *shared) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	s.settle(ctx)
	if err := s.Interface.GetList(ctx, key, opts, list); err != nil {
		return err
	}
	return presentationOf(ctx).list(list)
}

// Watch implements storage.Interface.
func (s *shared) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	s.settle(ctx)
	stream, err := s.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return presentationOf(ctx).watch(stream), nil
}

// Get implements storage.Interface.
func (s *shared) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	if err := s.get(ctx, key, opts, out); err != nil {
		return err
	}
	return presentationOf(ctx).into(out)
}

func (s *shared) get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	if err := s.Interface.Get(ctx, key, opts, out); err != nil || opts.ResourceVersion != "" || !s.cached || s.ReadinessCheck() != nil {
		return err
	}
	obj, ok := out.(*Object)
	if !ok || obj.stored == nil {
		return nil
	}
	twin := &Object{}
	err := s.Interface.Get(ctx, key, storage.GetOptions{ResourceVersion: "0", IgnoreNotFound: true}, twin)
	if err == nil && twin.stored != nil && twin.resourceVersion == obj.resourceVersion {
		*obj = *twin
	}
	return nil
}
