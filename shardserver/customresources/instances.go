package customresources

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Instances are the objects of one definition, or one bound resource, in one logical cluster, below the API: no admission,
// no audit.
type Instances struct {
	// Store lists them as they are stored, whatever their versions.
	Store storage.Store
	// Deleter deletes one, with all that finalizers and owner references ask for; one that cannot be converted, too. The
	// logical cluster and the namespace are those of the context.
	Deleter rest.GracefulDeleter
	// Settled says that through this process no more objects can come: the definition, or the binding, is terminating, and every request
	// that began before has ended.
	Settled bool

	release func()
}

// Release gives the objects back. Nothing of Instances may be used afterwards.
func (i *Instances) Release() { i.release() }

// Holds tells whether the context's logical cluster has objects of a resource in storage, whether or not its definition
// is served now.
func (c *Catalog) Holds(ctx context.Context, gr schema.GroupResource) (bool, error) {
	found := c.storage(storageKey{gr, Segment})
	if found == nil {
		return false, fmt.Errorf("the storage of %s is not open yet", gr)
	}
	list, err := found.Store().List(ctx, &internalversion.ListOptions{Limit: 1})
	if err != nil {
		return false, fmt.Errorf("looking for objects of %s: %w", gr, err)
	}
	return meta.LenList(list) > 0, nil
}

// Instances returns the objects of a resource that the context's logical cluster defines itself, or, if the context names
// an identity (bindings.WithIdentity), of the one that it binds with it; nil if there is none. Release them.
func (c *Catalog) Instances(ctx context.Context, gr schema.GroupResource) (*Instances, error) {
	find := c.useOwn
	if bindings.IdentityFrom(ctx) != "" {
		find = c.use
	}
	use, err := find(ctx, gr, false)
	if use == nil || err != nil {
		return nil, err
	}
	compiled, err := use.content.get()
	if err != nil {
		c.done(use)
		return nil, err
	}
	deleter, ok := compiled.instances.(rest.GracefulDeleter)
	if !ok {
		c.done(use)
		return nil, fmt.Errorf("objects of %s cannot be deleted: their registry is %T", gr, compiled.instances)
	}
	return &Instances{
		Store:   use.content.resource.Store,
		Deleter: &remover{GracefulDeleter: deleter, store: use.content.store},
		Settled: use.terminating && c.writers(use) == 0,
		release: func() { c.done(use) },
	}, nil
}

// writers returns how many requests write what a use is of.
func (c *Catalog) writers(u *use) int64 {
	if u.definition != nil {
		return u.definition.writers.Load()
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if at := c.places[u.key]; at != nil {
		return at.writers.Load()
	}
	return 0
}
