package storage

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// cached puts the stock watch cache on the stock storage, as genericregistry.StorageWithCacher does, with one
// difference that has no seam there: the storage says that it cannot stream its initial list. The reflector inside
// the watch cache gathers such a stream in a store keyed by namespace and name, where the objects of all logical
// clusters but one would be lost; an ordinary list reaches the watch cache, and its own keys, as it is. To be
// replaced by the stock function once the reflector takes the key function of what it fills.
//
// What is to be kept goes through the given function first, which may make it smaller: nobody else has it yet.
func cached(
	compact func(runtime.Object),
	config *storagebackend.ConfigForResource,
	resourcePrefix string,
	keyFunc func(obj runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object,
	getAttrs storage.AttrFunc,
	trigger storage.IndexerFuncs,
	indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	raw, destroyRaw, err := generic.NewRawStorage(config, newFunc, newListFunc, resourcePrefix)
	if err != nil {
		return nil, nil, err
	}
	if voluminous[config.GroupResource] {
		raw = smallPages{raw}
	}
	watchCache, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage:             &prompt{listing: listing{newForgetting(raw, newFunc, clock.RealClock{})}},
		Versioner:           storage.APIObjectVersioner{},
		GroupResource:       config.GroupResource,
		EventsHistoryWindow: config.EventsHistoryWindow,
		ResourcePrefix:      resourcePrefix,
		KeyFunc: func(obj runtime.Object) (string, error) { // asked once for each object, before it is kept
			compact(obj)
			return keyFunc(obj)
		},
		NewFunc:      newFunc,
		NewListFunc:  newListFunc,
		GetAttrsFunc: getAttrs,
		IndexerFuncs: trigger,
		Indexers:     indexers,
		Codec:        config.Codec,
	})
	if err != nil {
		destroyRaw()
		return nil, nil, err
	}
	delegator := cacher.NewCacheDelegator(watchCache, raw)
	return &plain{CacheDelegator: delegator, watchCache: watchCache}, sync.OnceFunc(func() {
		delegator.Stop()
		watchCache.Stop()
		destroyRaw()
	}), nil
}

// plain reads what a watch cache has at the moment without a span. Authorization alone does so several times for each
// request, and a span, recorded or not, allocates more than the read.
type plain struct {
	*cacher.CacheDelegator
	watchCache *cacher.Cacher
}

// Get implements storage.Interface.
func (p *plain) Get(ctx context.Context, key string, opts storage.GetOptions, into runtime.Object) error {
	if opts.ResourceVersion == "0" && p.watchCache.Ready() {
		return p.watchCache.Get(ctx, key, opts, into)
	}
	return p.CacheDelegator.Get(ctx, key, opts, into)
}

// listing is storage whose content is listed, not streamed, by the reflector that fills a watch cache.
type listing struct{ storage.Interface }

// IsWatchListSemanticsUnSupported is what reflectors ask for.
func (listing) IsWatchListSemanticsUnSupported() bool { return true }
