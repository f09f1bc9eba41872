package apiindex

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// ReferenceIndex indexes the objects of one resource by the export that they refer to, whether or not it exists. It
// stores one key per object until the object is deleted. It is safe for concurrent use.
type ReferenceIndex[T client.Object] struct {
	referenceOf func(T) (Reference, error)
	informer    *informer.Informer[T]

	mu       sync.RWMutex
	requests map[Reference]sets.Set[controller.Request]
	// added are the objects that other watches added while the informer is disconnected; nil while it is connected.
	added sets.Set[controller.Request]
}

// NewConsumerIndex returns an index of APIBindings by export. It includes those of logical clusters that move from or to this shard:
// providers have to find the destination before it serves the logical cluster, and the origin until nothing is left there.
func NewConsumerIndex(registry *storage.Registry) *ReferenceIndex[*apisv1alpha2.APIBinding] {
	reader := storage.NewReader[*apisv1alpha2.APIBinding](registry, apisv1alpha2.Resource("apibindings"))
	return newReferenceIndex(reader.Resource(), reader.WatchMoving, ReferenceOf)
}

// NewSliceIndex returns an index of APIExportEndpointSlices by export.
func NewSliceIndex(registry *storage.Registry) *ReferenceIndex[*apisv1alpha1.APIExportEndpointSlice] {
	reader := storage.NewReader[*apisv1alpha1.APIExportEndpointSlice](registry, apisv1alpha1.Resource("apiexportendpointslices"))
	return newReferenceIndex(reader.Resource(), reader.WatchAll, ReferenceOfSlice)
}

func newReferenceIndex[T client.Object](resource schema.GroupResource, watch informer.WatchFunc, reference func(T) (Reference, error)) *ReferenceIndex[T] {
	r := &ReferenceIndex[T]{referenceOf: reference, requests: map[Reference]sets.Set[controller.Request]{}, added: sets.New[controller.Request]()}
	update := func(_ context.Context, object T) error { r.Observe(object, false); return nil }
	r.informer = informer.NewWithHandler(resource, watch, informer.EventHandler[T]{
		OnReplace:    func(_ context.Context, objects []T, _ string) error { r.replace(objects); return nil },
		OnAdd:        update,
		OnUpdate:     update,
		OnDelete:     func(_ context.Context, object T) error { r.Observe(object, true); return nil },
		OnDisconnect: r.disconnect,
	})
	return r
}

// Run keeps the index up to date until the context ends. It is called once.
func (r *ReferenceIndex[T]) Run(ctx context.Context) { r.informer.Run(ctx) }

// WaitForSync returns when every object that existed at the start is indexed.
func (r *ReferenceIndex[T]) WaitForSync(ctx context.Context) error {
	return r.informer.WaitForSync(ctx)
}

// Observe adds or removes an object that another watch has delivered, so that the handlers of that watch find it in the
// index. References are immutable, so that number and order of the calls do not matter.
func (r *ReferenceIndex[T]) Observe(object T, deleted bool) {
	reference, err := r.referenceOf(object)
	if err != nil {
		return // invalid reference
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := requestFor(object)
	if deleted {
		removeFrom(r.requests, reference, key)
		r.added.Delete(key)
		return
	}
	insert(r.requests, reference, key)
	if r.added != nil {
		r.added.Insert(key)
	}
}

// RequestsFor returns the keys of all objects that refer to an export by its canonical path or by its logical cluster, in
// no order.
func (r *ReferenceIndex[T]) RequestsFor(export *apisv1alpha2.APIExport) []controller.Request {
	return r.RequestsForReferences(referencesTo(export)...)
}

// RequestsForReferences returns the keys of all objects with one of the references.
func (r *ReferenceIndex[T]) RequestsForReferences(references ...Reference) []controller.Request {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var keys []controller.Request
	for _, reference := range references {
		keys = append(keys, r.requests[reference].UnsortedList()...)
	}
	return keys
}

// HasReferences reports whether any object refers to an export.
func (r *ReferenceIndex[T]) HasReferences(export *apisv1alpha2.APIExport) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, reference := range referencesTo(export) {
		if len(r.requests[reference]) > 0 {
			return true
		}
	}
	return false
}

// Sizes returns the number of indexed references and objects, which bound the memory of the index.
func (r *ReferenceIndex[T]) Sizes() (references, objects int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, keys := range r.requests {
		objects += len(keys)
	}
	return len(r.requests), objects
}

func (r *ReferenceIndex[T]) disconnect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.added = sets.New[controller.Request]()
}

// replace adds all objects and removes those that no longer exist. Objects that another watch added meanwhile stay,
// because they may have been created after the list.
func (r *ReferenceIndex[T]) replace(objects []T) {
	for _, object := range objects {
		r.Observe(object, false)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	added := r.added
	r.added = nil
	for reference, keys := range r.requests {
		for key := range keys {
			if !added.Has(key) {
				delete(keys, key)
			}
		}
		if len(keys) == 0 {
			delete(r.requests, reference)
		}
	}
}

func requestFor(object client.Object) controller.Request {
	return controller.Request{ClusterName: logicalcluster.Of(object), Name: object.GetName()}
}
