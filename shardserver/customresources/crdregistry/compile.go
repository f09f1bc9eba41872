package crdregistry

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
)

// CompileFor returns a compiled CRD over a storage that the registry does not manage, with the definition of that UID in
// system:bound-crds: for serving copies of the objects of other shards. It fails with ServiceUnavailable if that
// definition is missing. Callers must close the compiled CRD, before they release the storage.
func (r *Registry) CompileFor(ctx context.Context, gr schema.GroupResource, uid types.UID, store *crdstorage.Storage) (*CompiledCRD, error) {
	d, err := r.getBoundDefinition(ctx, gr, uid)
	if err != nil {
		return nil, err
	}
	if !d.isEstablished() || d.resource != gr {
		return nil, newUnavailableError(gr)
	}
	return r.newCRD(d.parsedDefinition, store), nil
}

// IsCurrent returns whether the definition in system:bound-crds with that UID still is the one that CompileFor compiled.
func (r *Registry) IsCurrent(uid types.UID, crd *CompiledCRD) bool {
	d := r.cachedBoundDefinition(uid)
	return d.isEstablished() && d.hash == crd.Hash
}
