package crdregistry

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

// Lease is what one request uses. Its compiled CRD and storage stay open until Release.
type Lease struct {
	CRD *CompiledCRD
	// Terminating forbids the creation of objects: the definition or the binding is being deleted.
	Terminating bool

	registry *Registry
	crd      *ref[*CompiledCRD]
	// definition is the logical cluster's own definition, bound the bound resource; one of them is nil.
	definition *definition
	bound      *bindings.Resource
	key        inFlightKey
	// writeRef is the tracker that counts a write to a bound resource, and countsWrite is set for a write to a resource
	// of the logical cluster's own definition.
	writeRef    *ref[*inFlight]
	countsWrite bool
	// wildcard is the reference of a request over all logical clusters.
	wildcard *ref[struct{}]
}

// Acquire returns a lease of a resource in the context's logical cluster, for a request that may write or not, or nil if
// the registry does not serve the resource there. A bound resource hides one that the logical cluster defines itself; a
// request with an identity only gets a bound one. If the informers do not have a binding or a definition, it is read:
// what a client has seen bound or established is found.
func (r *Registry) Acquire(ctx context.Context, gr schema.GroupResource, writes bool) (*Lease, error) {
	if b, ok := r.Bindings.Get(ctx, gr); ok {
		return r.acquireBound(ctx, b, writes)
	}
	hasIdentity := bindings.IdentityFrom(ctx) != ""
	if !hasIdentity {
		if lease := r.findOwn(ctx, gr, writes); lease != nil {
			return lease, nil
		}
	}
	b, ok, err := r.Bindings.GetLatest(ctx, gr)
	if err != nil {
		return nil, err
	}
	if ok {
		return r.acquireBound(ctx, b, writes)
	}
	if hasIdentity {
		return nil, nil
	}
	return r.acquireOwn(ctx, gr, writes)
}

// acquireOwn returns a lease of a resource that the context's logical cluster defines itself, even if a bound resource
// hides it.
func (r *Registry) acquireOwn(ctx context.Context, gr schema.GroupResource, writes bool) (*Lease, error) {
	if lease := r.findOwn(ctx, gr, writes); lease != nil {
		return lease, nil
	}
	if len(content.IsPathSegmentName(gr.String())) > 0 {
		return nil, nil // no definition can have this name
	}
	object, err := r.reader.GetLatest(ctx, "", gr.String())
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the definition of %s: %w", gr, err)
	}
	d, err := parseDefinition(r.Specs, object)
	if err != nil {
		return nil, err
	}
	if err := r.update(d, true); err != nil {
		return nil, err
	}
	return r.findOwn(ctx, gr, writes), nil
}

// findOwn returns a lease of a resource that the context's logical cluster defines itself and the registry has, or nil.
func (r *Registry) findOwn(ctx context.Context, gr schema.GroupResource, writes bool) *Lease {
	cluster, _ := logicalcluster.From(ctx)
	r.mu.RLock()
	defer r.mu.RUnlock()
	d := r.definitions[cluster][gr.String()]
	if d == nil || d.crd == nil {
		return nil
	}
	lease := &Lease{registry: r, Terminating: d.terminating, definition: d}
	lease.retainCRD(d.crd)
	if writes && !d.terminating {
		lease.countsWrite = true
		d.writers.Add(1)
	}
	return lease
}

// retainCRD adds a reference to the compiled CRD. Callers must hold the registry's mu, for reading at least.
func (l *Lease) retainCRD(crd *ref[*CompiledCRD]) {
	l.crd = crd.retain()
	l.CRD = crd.value
}

// Release ends the lease. It must be called once.
func (l *Lease) Release() {
	if l.countsWrite {
		l.definition.writers.Add(-1)
	}
	if l.writeRef != nil {
		l.writeRef.value.writers.Add(-1)
		l.registry.inFlight.release(l.key, l.writeRef)
	}
	l.registry.releaseCRD(l.crd)
	if l.wildcard != nil {
		l.registry.releaseWildcard(*l.bound, l.wildcard)
	}
}

// OnChange calls cancel when the definition or the binding changes or is deleted: at once, if that has happened since the
// lease was acquired. Callers must call stop when they do not need that any more, before Release.
func (l *Lease) OnChange(cancel func()) (stop func()) {
	r := l.registry
	w := &clientWatch{cancel: cancel, bound: l.bound}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !l.isCurrent() {
		cancel()
		return func() {}
	}
	if l.definition != nil {
		requests := &l.definition.inFlight
		requests.addWatch(w)
		return func() { r.removeWatch(requests, w) }
	}
	requests := r.retainInFlightLocked(l.key)
	requests.value.addWatch(w)
	return func() {
		r.removeWatch(requests.value, w)
		r.inFlight.release(l.key, requests)
	}
}

func (f *inFlight) addWatch(w *clientWatch) {
	if f.watches == nil {
		f.watches = map[*clientWatch]struct{}{}
	}
	f.watches[w] = struct{}{}
}

func (r *Registry) removeWatch(requests *inFlight, w *clientWatch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(requests.watches, w)
}

// isCurrent returns whether Acquire would return the same compiled CRD now. Callers must hold the registry's mu.
func (l *Lease) isCurrent() bool {
	if l.definition != nil {
		return l.definition.crd == l.crd
	}
	return l.registry.boundCRDs[l.bound.SchemaUID][*l.bound] == l.crd && l.registry.isBound(l.key, l.bound)
}

// countWriters returns the number of writes in flight to the leased resource.
func (l *Lease) countWriters() int64 {
	if l.definition != nil {
		return l.definition.writers.Load()
	}
	l.registry.mu.RLock()
	defer l.registry.mu.RUnlock()
	if requests := l.registry.inFlight.entries[l.key]; requests != nil {
		return requests.value.writers.Load()
	}
	return 0
}
