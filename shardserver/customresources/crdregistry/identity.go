package crdregistry

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

// AcquireIdentity returns a lease of a resource with an identity over all logical clusters, or nil. If no logical cluster
// of this shard binds it, the schema is that of an export with the identity, provided that the definition of the schema
// exists: clients that claim an identity may list it before it is bound. The storage is then open until the lease is
// released.
func (r *Registry) AcquireIdentity(ctx context.Context, gr schema.GroupResource, identity string) (*Lease, error) {
	if bound := r.Bindings.GetByIdentity(gr, identity); bound != nil && r.storesObjects(bound) {
		lease, err := r.acquireWildcard(ctx, bound)
		if lease != nil || err != nil {
			return lease, err
		}
	}
	found, err := r.FindExported(ctx, gr, identity)
	if found == nil || err != nil || !r.storesObjects(found) {
		return nil, err
	}
	return r.acquireWildcard(ctx, found)
}

// acquireWildcard returns a lease of a resource over all logical clusters, or nil.
func (r *Registry) acquireWildcard(ctx context.Context, resource *bindings.Resource) (*Lease, error) {
	wildcard, err := r.retainWildcard(*resource)
	if err != nil {
		r.releaseWildcard(*resource, wildcard)
		return nil, err
	}
	if lease := r.findWildcard(resource, wildcard); lease != nil {
		return lease, nil
	}
	if err := r.readBoundDefinition(ctx, resource.GroupResource, resource.SchemaUID); err != nil {
		r.releaseWildcard(*resource, wildcard)
		if apierrors.IsServiceUnavailable(err) {
			return nil, nil
		}
		return nil, err
	}
	lease := r.findWildcard(resource, wildcard)
	if lease == nil {
		r.releaseWildcard(*resource, wildcard)
	}
	return lease, nil
}

func (r *Registry) findWildcard(resource *bindings.Resource, wildcard *ref[struct{}]) *Lease {
	r.mu.RLock()
	defer r.mu.RUnlock()
	crd := r.boundCRDs[resource.SchemaUID][*resource]
	if crd == nil {
		return nil
	}
	lease := &Lease{registry: r, bound: resource, wildcard: wildcard, key: inFlightKey{logicalcluster.Wildcard, resource.GroupResource}}
	lease.retainCRD(crd)
	return lease
}

// retainWildcard keeps the compiled CRD of a resource until releaseWildcard, whether or not it is bound. The reference
// must be released on an error, too.
func (r *Registry) retainWildcard(resource bindings.Resource) (*ref[struct{}], error) {
	defer r.openStorages(r.boundStorages(&resource)...)()
	r.updateMu.Lock()
	defer r.updateMu.Unlock()
	r.mu.Lock()
	wildcard := r.wildcard.retain(resource, func() struct{} { return struct{}{} })
	r.mu.Unlock()
	return wildcard, r.syncWildcard(resource)
}

func (r *Registry) releaseWildcard(resource bindings.Resource, wildcard *ref[struct{}]) {
	r.updateMu.Lock()
	defer r.updateMu.Unlock()
	r.wildcard.release(resource, wildcard)
	if err := r.syncWildcard(resource); err != nil && !errors.Is(err, errClosed) {
		klog.Background().Error(err, "Failed to close a resource that no request uses", "resource", resource.GroupResource)
	}
}

func (r *Registry) syncWildcard(resource bindings.Resource) error {
	if r.closed {
		return errClosed
	}
	return r.syncBound(resource.SchemaUID)
}
