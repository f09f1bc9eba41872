package crdregistry

import (
	"context"
	"errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

// storesObjects returns whether the registry serves a bound resource. It does not serve those that are built-in, those of
// a virtual workspace, and those whose objects would be stored among the objects of a built-in resource.
func (r *Registry) storesObjects(resource *bindings.Resource) bool {
	return !resource.Virtual && !r.IsBuiltIn(resource) && resource.Identity != "" &&
		!r.overlapsBuiltIn(storageKey{resource.GroupResource, resource.Identity})
}

// storesWith returns whether the registry serves a bound resource with a definition of system:bound-crds.
func (r *Registry) storesWith(d parsedDefinition, resource *bindings.Resource) bool {
	return d.served && resource.GroupResource == d.resource && r.storesObjects(resource)
}

// IsBuiltIn returns whether a bound resource is a built-in one.
func (r *Registry) IsBuiltIn(resource *bindings.Resource) bool {
	return r.HasBuiltInIdentity(resource.GroupResource, resource.Identity)
}

// HasBuiltInIdentity returns whether a built-in resource is stored with an identity.
func (r *Registry) HasBuiltInIdentity(gr schema.GroupResource, identity string) bool {
	builtIn, err := r.Resources.Get(gr)
	return err == nil && identity != "" && builtIn.Identity() == identity
}

// acquireBound returns a lease of a bound resource for a request to one logical cluster.
func (r *Registry) acquireBound(ctx context.Context, b bindings.BoundResource, writes bool) (*Lease, error) {
	if identity := bindings.IdentityFrom(ctx); identity != "" && identity != b.Identity {
		return nil, nil
	}
	if r.IsBuiltIn(b.Resource) {
		return nil, nil
	}
	if !r.storesObjects(b.Resource) {
		return nil, newUnavailableError(b.GroupResource)
	}
	if lease := r.findBound(ctx, b, writes); lease != nil {
		return lease, nil
	}
	if err := r.readBoundDefinition(ctx, b.GroupResource, b.SchemaUID); err != nil {
		return nil, err
	}
	if lease := r.findBound(ctx, b, writes); lease != nil {
		return lease, nil
	}
	return nil, newUnavailableError(b.GroupResource)
}

// findBound returns a lease of a bound resource whose compiled CRD exists, or nil.
func (r *Registry) findBound(ctx context.Context, b bindings.BoundResource, writes bool) *Lease {
	cluster, _ := logicalcluster.From(ctx)
	lease := &Lease{registry: r, bound: b.Resource, key: inFlightKey{cluster, b.GroupResource}}
	if writes {
		// The write is counted before the binding is read again: a reader that finds the binding terminating and no
		// write in flight can rely on no further write.
		requests := r.retainInFlight(lease.key)
		requests.value.writers.Add(1)
		current, ok := r.Bindings.Get(ctx, b.GroupResource)
		if b.Terminating = b.Terminating || !ok || current.Terminating; b.Terminating {
			requests.value.writers.Add(-1)
			r.inFlight.release(lease.key, requests)
		} else {
			lease.writeRef = requests
		}
	}
	lease.Terminating = b.Terminating
	r.mu.RLock()
	crd := r.boundCRDs[b.SchemaUID][*b.Resource]
	if crd != nil {
		lease.retainCRD(crd)
	}
	r.mu.RUnlock()
	if crd == nil {
		lease.Release()
		return nil
	}
	return lease
}

// syncBound creates and removes the compiled CRDs of a definition in system:bound-crds, so that there is one for every
// resource that is bound with it or used by a wildcard request. Callers must hold updateMu. All state is read under that
// lock, so the call after the last change acts on all changes.
func (r *Registry) syncBound(uid types.UID) error {
	desired := r.neededBound(uid)
	r.mu.RLock()
	definition, existing := r.boundDefinitions[uid], maps.Clone(r.boundCRDs[uid])
	r.mu.RUnlock()
	for resource, crd := range existing {
		if !desired.Has(resource) || !definition.isEstablished() || crd.value.Hash != definition.hash {
			r.removeBound(resource)
			delete(existing, resource)
		}
	}
	if !definition.isEstablished() {
		return nil
	}
	var errs []error
	for resource := range desired {
		if existing[resource] == nil && r.storesWith(definition.parsedDefinition, &resource) {
			errs = append(errs, r.addBound(resource, definition.parsedDefinition))
		}
	}
	return errors.Join(errs...)
}

// neededBound returns the resources that are bound with a schema or used by a wildcard request.
func (r *Registry) neededBound(uid types.UID) sets.Set[bindings.Resource] {
	needed := sets.New[bindings.Resource]()
	for _, resource := range r.Bindings.ListBySchema(uid) {
		needed.Insert(*resource)
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for resource := range r.wildcard.entries {
		if resource.SchemaUID == uid {
			needed.Insert(resource)
		}
	}
	return needed
}

// addBound creates the compiled CRD of a bound resource. Callers must hold updateMu.
func (r *Registry) addBound(resource bindings.Resource, d parsedDefinition) error {
	if err := r.acquireStorage(storageKey{resource.GroupResource, resource.Identity}, d); err != nil {
		return err
	}
	crd := r.acquireCRD(d, resource.Identity)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.boundCRDs[resource.SchemaUID] == nil {
		r.boundCRDs[resource.SchemaUID] = map[bindings.Resource]*ref[*CompiledCRD]{}
	}
	r.boundCRDs[resource.SchemaUID][resource] = crd
	return nil
}

// removeBound removes the compiled CRD of a bound resource. Callers must hold updateMu.
func (r *Registry) removeBound(resource bindings.Resource) {
	r.mu.Lock()
	crd := r.boundCRDs[resource.SchemaUID][resource]
	if delete(r.boundCRDs[resource.SchemaUID], resource); len(r.boundCRDs[resource.SchemaUID]) == 0 {
		delete(r.boundCRDs, resource.SchemaUID)
	}
	for key, requests := range r.inFlight.entries {
		if key.resource == resource.GroupResource {
			requests.value.cancelWatchesUnless(func(bound *bindings.Resource) bool { return *bound != resource })
		}
	}
	r.mu.Unlock()
	r.releaseCRD(crd)
	r.releaseStorage(storageKey{resource.GroupResource, resource.Identity})
}

// syncBinding updates the compiled CRDs after a logical cluster changed what it binds.
func (r *Registry) syncBinding(change bindings.Change) {
	change.Resources = slices.DeleteFunc(slices.Clone(change.Resources), func(resource *bindings.Resource) bool {
		return resource.Virtual || r.IsBuiltIn(resource)
	})
	if len(change.Resources) == 0 {
		return // as for every new workspace
	}
	defer r.openStorages(r.boundStorages(change.Resources...)...)()
	r.updateMu.Lock()
	defer r.updateMu.Unlock()
	if r.closed {
		return
	}
	for _, resource := range change.Resources {
		if err := r.syncBound(resource.SchemaUID); err != nil {
			klog.Background().Error(err, "Failed to serve a bound resource", "resource", resource.GroupResource, "export", resource.Export)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range change.Resources {
		key := inFlightKey{change.Cluster, resource.GroupResource}
		if requests := r.inFlight.entries[key]; requests != nil {
			requests.value.cancelWatchesUnless(func(bound *bindings.Resource) bool { return r.isBound(key, bound) })
		}
		// A bound resource hides one that the logical cluster defines itself.
		if d := r.definitions[change.Cluster][resource.GroupResource.String()]; d != nil && len(d.watches) > 0 && r.isBound(key, resource) {
			d.cancelWatches()
		}
	}
}

// isBound returns whether a logical cluster binds exactly this resource now. It is true for the wildcard.
func (r *Registry) isBound(key inFlightKey, resource *bindings.Resource) bool {
	if key.cluster.IsWildcard() {
		return true
	}
	b, ok := r.Bindings.Get(logicalcluster.With(context.Background(), key.cluster), key.resource)
	return ok && *b.Resource == *resource
}
