package crdregistry

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
)

// CompileFor returns a compiled CRD over a storage of which the caller holds a reference, with the definition of that UID in
// system:bound-crds: for serving objects of a provider, or copies of them, as consumers have bound them. publication may be nil.
// It fails with ServiceUnavailable if that definition is missing. Callers must close the compiled CRD, before they release the
// storage.
func (r *Registry) CompileFor(ctx context.Context, gr schema.GroupResource, uid types.UID, store *crdstorage.Storage, publication *crdstorage.Publication) (*CompiledCRD, error) {
	d, err := r.getBoundDefinition(ctx, gr, uid)
	if err != nil {
		return nil, err
	}
	if !d.isEstablished() || d.resource != gr {
		return nil, newUnavailableError(gr)
	}
	crd := r.newCRD(d.parsedDefinition, store)
	crd.Publication = publication
	return crd, nil
}

// IsCurrent returns whether the definition in system:bound-crds with that UID still is the one that CompileFor compiled.
func (r *Registry) IsCurrent(uid types.UID, crd *CompiledCRD) bool {
	d := r.cachedBoundDefinition(uid)
	return d.isEstablished() && d.hash == crd.Hash
}
