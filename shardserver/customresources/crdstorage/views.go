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
	"k8s.io/utils/keymutex"
)

// Views are the views of one compiled CRD (equal definitions of any number of logical clusters), by version. They are the
// generic.RESTOptionsGetter of its upstream handler, which calls it once per version.
type Views struct {
	storage *Storage
	// publication converts stored objects before the views decode them; it may be nil.
	publication *Publication
	// versions are the names of the versions of the definition; if there is none, owners of fields in all versions stay.
	versions []string

	mu     sync.RWMutex
	views  map[string]*View
	closed bool
}

var _ generic.RESTOptionsGetter = &Views{}

// Views returns the views of a new compiled CRD, which the upstream handler creates. Callers must close them before they
// release the storage.
func (s *Storage) Views() *Views { return &Views{storage: s, views: map[string]*View{}} }

// GetRESTOptions implements generic.RESTOptionsGetter.
func (v *Views) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	if resource != v.storage.resource {
		return generic.RESTOptions{}, fmt.Errorf("the storage of %s has no %s", v.storage.resource, resource)
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

// decorate implements generic.StorageDecorator. It creates a view, as its parameters have the codec and the version.
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
		return nil, nil, fmt.Errorf("the upstream store of %s has no version", config.GroupResource)
	}
	id := &viewToken{}
	view := &View{
		Interface:    v.storage.objects,
		storage:      v.storage,
		id:           strconv.FormatUint(v.storage.viewCount.Add(1), 10),
		viewID:       id,
		variantLocks: keymutex.NewHashed(variantLockCount),
		identical:    &variant{view: id},
		codec:        v.publication.decodingWith(config.Codec),
		version:      version,
		versions:     v.versions,
		newFunc:      newFunc,
		getAttrs:     getAttrs,
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
		return nil, nil, fmt.Errorf("the definition of %s is deleted", config.GroupResource)
	}
	v.views[version.Version] = view
	return view, func() { v.closeView(view) }, nil
}

// closeView closes one view, which the upstream handler may already have replaced by another one.
func (v *Views) closeView(view *View) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.views[view.version.Version] == view {
		delete(v.views, view.version.Version)
	}
	view.close()
}

// Version returns the view of a version, or nil before the upstream handler has created it (on its first request), and
// after Close.
func (v *Views) Version(version string) *View {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.views[version]
}

// Close ends all watches through the views; later ones end at once. Other requests in flight complete. It may be called more
// than once.
func (v *Views) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	for _, view := range v.views {
		view.close()
	}
	clear(v.views)
}
