package raw

import (
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
	return nil, nil, nil
}

// Version returns the view of a version, or nil while the stock handler has not asked for it (it does so at its first
// request) or when it is closed.
func (v *Views) Version(version string) *View {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.views[version]
}

// Close ends all watches through the views and refuses what comes after. It may be called more than once.
func (v *Views) Close() {}

// View is the storage of one content in one version, for the stock store of custom resources: a storage.Interface of
// *unstructured.Unstructured above the shared storage of *Object.
type View struct {
	storage.Interface // the shared storage
	identity          *identity
	codec             runtime.Codec
	newFunc           func() runtime.Object
	getAttrs          storage.AttrFunc
}
