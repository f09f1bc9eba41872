package crdregistry

import (
	"github.com/atoll-dev/atoll/logicalcluster"
)

// update records a definition. A request may have read a definition whose deletion the informer has received: one that is
// older than the informer and missing from the registry is deleted.
func (r *Registry) update(parsed parsedDefinition, fromRequest bool) error {
	defer r.openStorages(r.definedStorages(parsed)...)()
	r.updateMu.Lock()
	defer r.updateMu.Unlock()
	if r.closed {
		return errClosed
	}
	if parsed.cluster == logicalcluster.BoundCRDs {
		return r.updateBoundDefinition(parsed, fromRequest)
	}
	r.mu.RLock()
	d, stale := r.definitions[parsed.cluster][parsed.name], fromRequest && parsed.version <= r.observedVersion
	r.mu.RUnlock()
	switch {
	case d == nil && stale:
		return nil
	case d == nil && r.OverlapsBuiltIn(parsed.resource):
		d = &definition{resource: parsed.resource}
	case d == nil:
		if err := r.acquireStorage(storageKey{parsed.resource, Segment}, parsed); err != nil {
			return err
		}
		d = &definition{resource: parsed.resource, hasStorage: true}
	case d.version >= parsed.version:
		return nil
	}
	var crd *ref[*CompiledCRD]
	if parsed.served && d.hasStorage {
		crd = r.acquireCRD(parsed, Segment)
	}
	r.mu.Lock()
	previous := d.crd
	d.version, d.terminating, d.crd = parsed.version, parsed.terminating, crd
	if previous != crd {
		d.cancelWatches()
	}
	if r.definitions[parsed.cluster] == nil {
		r.definitions[parsed.cluster] = map[string]*definition{}
	}
	r.definitions[parsed.cluster][parsed.name] = d
	r.mu.Unlock()
	r.releaseCRD(previous)
	return nil
}

// remove removes a deleted definition, unless the registry has a newer one of that name.
func (r *Registry) remove(key definitionKey, version uint64) {
	r.updateMu.Lock()
	defer r.updateMu.Unlock()
	if key.cluster == logicalcluster.BoundCRDs {
		r.removeBoundDefinition(key, version)
		return
	}
	r.mu.Lock()
	d := r.definitions[key.cluster][key.name]
	if d == nil || d.version > version {
		r.mu.Unlock()
		return
	}
	delete(r.definitions[key.cluster], key.name)
	if len(r.definitions[key.cluster]) == 0 {
		delete(r.definitions, key.cluster)
	}
	crd := d.crd
	d.crd = nil
	d.cancelWatches()
	r.mu.Unlock()
	r.releaseCRD(crd)
	if d.hasStorage {
		r.releaseStorage(storageKey{d.resource, Segment})
	}
}
