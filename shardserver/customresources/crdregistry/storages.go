package crdregistry

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
)

// storageKey names the storage of a resource: of all logical clusters that define it, or that bind it with an identity.
type storageKey struct {
	resource schema.GroupResource
	// segment is Segment or an identity.
	segment string
}

// crdKey names a compiled CRD: equal definitions over one storage.
type crdKey struct {
	hash    apiextensions.Hash
	segment string
}

// openStorage is a storage that definitions, bound resources and compiled CRDs reference.
type openStorage struct {
	*crdstorage.Storage
	// release returns it to the pool.
	release func()
}

// acquireCRD returns a reference to the compiled CRD of a definition over a storage, which must be open.
func (r *Registry) acquireCRD(d parsedDefinition, segment string) *ref[*CompiledCRD] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.crds.retain(crdKey{d.hash, segment}, func() *CompiledCRD {
		store := r.storages.entries[storageKey{d.resource, segment}].retain()
		return r.newCRD(d, store.value.Storage)
	})
}

// releaseCRD drops a reference, which may be nil, and closes the compiled CRD with its last one.
func (r *Registry) releaseCRD(crd *ref[*CompiledCRD]) {
	if crd == nil {
		return
	}
	segment := crd.value.Storage.Segment()
	if r.crds.release(crdKey{crd.value.Hash, segment}, crd) {
		crd.value.Close()
		r.releaseStorage(storageKey{crd.value.GroupResource(), segment})
	}
}

// acquireStorage adds a reference to a storage, opening it for the first one. Callers must hold updateMu.
func (r *Registry) acquireStorage(key storageKey, d parsedDefinition) error {
	r.mu.Lock()
	existing := r.storages.entries[key]
	if existing != nil {
		existing.retain()
	}
	r.mu.Unlock()
	if existing != nil {
		return nil
	}
	store, release, err := r.Pool.Acquire(key.resource, key.segment)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.storages.retain(key, func() openStorage { return openStorage{store, release} })
	r.Resources.AddCustom(newResource(d.object, store.Store(), store.Prefix()))
	return nil
}

// openStorages opens the storages that acquireStorage is about to need, and returns what releases them again. Opening waits for a connection
// to etcd, and updateMu is needed by every change of a definition or binding: callers must not hold it.
func (r *Registry) openStorages(keys ...storageKey) (release func()) {
	var releases []func()
	for _, key := range keys {
		r.mu.RLock()
		isOpen := r.storages.entries[key] != nil
		r.mu.RUnlock()
		if isOpen {
			continue
		}
		if _, release, err := r.Pool.Acquire(key.resource, key.segment); err == nil { // acquireStorage fails, too
			releases = append(releases, release)
		}
	}
	return func() {
		for _, release := range releases {
			release()
		}
	}
}

// definedStorages returns the storages that an update of a definition may open.
func (r *Registry) definedStorages(d parsedDefinition) []storageKey {
	if d.cluster != logicalcluster.BoundCRDs {
		if r.OverlapsBuiltIn(d.resource) {
			return nil
		}
		return []storageKey{{d.resource, Segment}}
	}
	var keys []storageKey
	for resource := range r.neededBound(types.UID(d.name)) {
		if r.storesWith(d, &resource) {
			keys = append(keys, storageKey{resource.GroupResource, resource.Identity})
		}
	}
	return keys
}

// boundStorages returns the storages of those of bound resources whose definitions are established.
func (r *Registry) boundStorages(resources ...*bindings.Resource) []storageKey {
	var keys []storageKey
	for _, resource := range resources {
		if d := r.cachedBoundDefinition(resource.SchemaUID); d != nil && r.storesWith(d.parsedDefinition, resource) {
			keys = append(keys, storageKey{resource.GroupResource, resource.Identity})
		}
	}
	return keys
}

// releaseStorage drops a reference, and closes the storage with its last one, when no request can reach it.
func (r *Registry) releaseStorage(key storageKey) {
	r.mu.RLock()
	existing := r.storages.entries[key]
	r.mu.RUnlock()
	if existing == nil {
		klog.Background().Error(nil, "Releasing a storage that is not open", "resource", key.resource, "segment", key.segment)
		return
	}
	if r.storages.release(key, existing) {
		existing.value.release()
	}
}
