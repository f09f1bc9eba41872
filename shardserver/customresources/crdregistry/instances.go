package crdregistry

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Instances are the objects of one definition, or one bound resource, in one logical cluster, below the API: without
// admission and audit.
type Instances struct {
	// Store lists the objects as they are stored, in any version.
	Store storage.Store
	// Deleter deletes an object and honors finalizers and owner references. It also deletes objects that cannot be
	// converted, and those of the other scope. Logical cluster and namespace are those of the context.
	Deleter rest.GracefulDeleter
	// Quiesced means that no object can be created any more by this process: the definition, or the binding, is
	// terminating, and every write that began before has ended.
	Quiesced bool

	lease *Lease
}

// Release ends the use of the objects. Callers must call it once.
func (i *Instances) Release() { i.lease.Release() }

// AcquireInstances returns the objects of a resource that the context's logical cluster defines itself, or, if the context has an
// identity (bindings.WithIdentity), that it binds with that identity; nil if there is no such resource. Callers must
// release the result.
func (r *Registry) AcquireInstances(ctx context.Context, gr schema.GroupResource) (*Instances, error) {
	acquire := r.acquireOwn
	if bindings.IdentityFrom(ctx) != "" {
		acquire = r.Acquire
	}
	lease, err := acquire(ctx, gr, false)
	if lease == nil || err != nil {
		return nil, err
	}
	handlers, err := lease.CRD.Handlers()
	if err != nil {
		lease.Release()
		return nil, err
	}
	deleter, ok := handlers.Instances.(rest.GracefulDeleter)
	if !ok {
		lease.Release()
		return nil, fmt.Errorf("objects of %s cannot be deleted: their registry is %T", gr, handlers.Instances)
	}
	return &Instances{
		Store:    lease.CRD.Resource.Store,
		Deleter:  &fallbackDeleter{GracefulDeleter: deleter, store: lease.CRD.Storage, namespaced: lease.CRD.Resource.Namespaced},
		Quiesced: lease.Terminating && lease.countWriters() == 0,
		lease:    lease,
	}, nil
}
