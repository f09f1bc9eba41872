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
	// readyTimeout bounds the time that the first requests of a storage wait for its watch cache. Then requests fail with
	// a retry, as they do in the upstream watch cache at once.
	readyTimeout = 3 * time.Second
	readyPoll    = 5 * time.Millisecond
)

// sharedStorage is the upstream storage and watch cache of all logical clusters and compiled CRDs, with these differences:
//
// The first requests, except gets, wait for the watch cache: clients often use a definition as soon as it is established,
// which opens its storage, and would have to retry. A write before the initial list of the watch cache could not be watched
// from.
//
// An object that is read from etcd is replaced by the object with the same resource version in the watch cache, if present,
// which has cached variants.
//
// Reads with a projection (WithProjection) return projected objects, and those with a filter (WithFilter) the objects that match.
type sharedStorage struct {
	storage.Interface
	cached bool
	ready  atomic.Bool
}

// waitReady waits for the initial fill of the watch cache. After a later reinitialization requests are not delayed.
func (s *sharedStorage) waitReady(ctx context.Context) {
	if s.ready.Load() {
		return
	}
	// After a timeout the request itself fails.
	_ = wait.PollUntilContextTimeout(ctx, readyPoll, readyTimeout, true, func(context.Context) (bool, error) {
		return s.ready.Load() || s.ReadinessCheck() == nil, nil
	})
	s.ready.Store(true)
}

// Create implements storage.Interface.
func (s *sharedStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	s.waitReady(ctx)
	return s.Interface.Create(ctx, key, obj, out, ttl)
}

// GuaranteedUpdate implements storage.Interface.
func (s *sharedStorage) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object) error {
	s.waitReady(ctx)
	return s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cached)
}

// GetList implements storage.Interface.
func (s *sharedStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	s.waitReady(ctx)
	projection := projectionFrom(ctx)
	opts, err := projection.limitList(ctx, opts)
	if err != nil {
		return err
	}
	opts.Predicate = filterPredicate(ctx, opts.Predicate)
	if err := s.Interface.GetList(ctx, key, opts, list); err != nil {
		return err
	}
	return projection.projectList(ctx, list)
}

// Watch implements storage.Interface.
func (s *sharedStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	s.waitReady(ctx)
	opts.Predicate = filterPredicate(ctx, opts.Predicate)
	stream, err := s.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	projected, err := projectionFrom(ctx).projectWatch(ctx, stream, opts)
	if err != nil {
		stream.Stop()
	}
	return projected, err
}

// Get implements storage.Interface.
func (s *sharedStorage) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	if err := s.getCached(ctx, key, opts, out); err != nil {
		return err
	}
	return projectionFrom(ctx).projectInto(out)
}

func (s *sharedStorage) getCached(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	if err := s.Interface.Get(ctx, key, opts, out); err != nil || opts.ResourceVersion != "" || !s.cached || s.ReadinessCheck() != nil {
		return err
	}
	obj, ok := out.(*Object)
	if !ok || obj.stored == nil {
		return nil
	}
	fromCache := &Object{}
	err := s.Interface.Get(ctx, key, storage.GetOptions{ResourceVersion: "0", IgnoreNotFound: true}, fromCache)
	if err == nil && fromCache.stored != nil && fromCache.resourceVersion == obj.resourceVersion {
		*obj = *fromCache
	}
	return nil
}
