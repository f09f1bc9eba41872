package crdstorage

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// Views are what one content (equal definitions of any number of logical clusters) sees of a storage, by version. They
// are the generic.RESTOptionsGetter to give to the stock handler of that content, which asks once per version.
type Views struct {
	storage *Storage

	mu     sync.RWMutex
	views  map[string]*View
	closed bool
}

var _ generic.RESTOptionsGetter = &Views{}

// Views returns what a new content sees of the storage: nothing until the stock handler has asked for it. Close it
// when the content ends, before the storage is released.
func (s *Storage) Views() *Views { return &Views{storage: s, views: map[string]*View{}} }

// GetRESTOptions implements generic.RESTOptionsGetter.
func (v *Views) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	if resource != v.storage.resource {
		return generic.RESTOptions{}, fmt.Errorf("the storage of %s holds no %s", v.storage.resource, resource)
	}
	config := v.storage.options.Storage.ForResource(resource)
	config.Codec = unstructured.UnstructuredJSONScheme
	return generic.RESTOptions{
		StorageConfig:           config,
		Decorator:               v.decorate,
		ResourcePrefix:          v.storage.Prefix(),
		EnableGarbageCollection: v.storage.options.GarbageCollection,
		DeleteCollectionWorkers: v.storage.options.DeleteCollectionWorkers,
	}, nil
}

// decorate implements generic.StorageDecorator: it is where the codec and the version of a view become known.
func (v *Views) decorate(
	config *storagebackend.ConfigForResource,
	_ string,
	_ func(obj runtime.Object) (string, error),
	newFunc, _ func() runtime.Object,
	getAttrs storage.AttrFunc,
	_ storage.IndexerFuncs,
	_ *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	version := newFunc().GetObjectKind().GroupVersionKind().GroupVersion()
	if version.Version == "" {
		return nil, nil, fmt.Errorf("the stock store of %s does not say which version it serves", config.GroupResource)
	}
	id := &identity{}
	view := &View{
		Interface: v.storage.objects,
		storage:   v.storage,
		id:        strconv.FormatUint(v.storage.opened.Add(1), 10),
		identity:  id,
		asIs:      &form{of: id},
		codec:     config.Codec,
		version:   version,
		newFunc:   newFunc,
		getAttrs:  getAttrs,
	}
	ctx, cancel := context.WithCancel(context.Background())
	view.ctx, view.close = ctx, func() {
		id.closed.Store(true)
		cancel()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		view.close()
		return nil, nil, fmt.Errorf("the definition of %s is gone", config.GroupResource)
	}
	v.views[version.Version] = view
	return view, func() { v.closeView(view) }, nil
}

// closeView ends one view, which the stock handler may already have replaced by another one.
func (v *Views) closeView(view *View) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.views[view.version.Version] == view {
		delete(v.views, view.version.Version)
	}
	view.close()
}

// Version returns the view of a version, or nil while the stock handler has not asked for it (it does so at its first
// request) and when the views are closed.
func (v *Views) Version(version string) *View {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.views[version]
}

// Close ends all watches through the views; later ones end at once. Other requests that are under way finish. It may
// be called more than once.
func (v *Views) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	for _, view := range v.views {
		view.close()
	}
	clear(v.views)
}
