package storage

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// newCachedStorage adds the stock watch cache to the stock storage, as genericregistry.StorageWithCacher does, with one
// difference that StorageWithCacher does not support: the storage does not support WatchList. The reflector inside the
// watch cache collects a streamed list in a store keyed by namespace and name, where objects of different logical
// clusters overwrite each other; a LIST reaches the watch cache, with its own keys, unchanged. The stock function can
// replace this one once the reflector uses the key function of the store that it fills.
func newCachedStorage(
	options CacheOptions,
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
	if options.MaxPageSize > 0 {
		raw = smallPages{raw, options.MaxPageSize}
	}
	if options.Transactions != nil {
		if raw, err = withTransactions(options.Transactions, raw, config, newFunc, newListFunc, resourcePrefix); err != nil {
			destroyRaw()
			return nil, nil, err
		}
	}
	watchCache, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage:             &progressRequester{noWatchList: noWatchList{raw}},
		Versioner:           storage.APIObjectVersioner{},
		GroupResource:       config.GroupResource,
		EventsHistoryWindow: config.EventsHistoryWindow,
		ResourcePrefix:      resourcePrefix,
		KeyFunc: func(obj runtime.Object) (string, error) { // called once for each object, before it is stored
			if options.Compact != nil {
				options.Compact(obj)
			}
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
	return delegator, sync.OnceFunc(func() {
		delegator.Stop()
		watchCache.Stop()
		destroyRaw()
	}), nil
}

// noWatchList is storage that the reflector of a watch cache lists instead of streaming.
type noWatchList struct{ storage.Interface }

// IsWatchListSemanticsUnSupported implements the check of reflectors for WatchList.
func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }
