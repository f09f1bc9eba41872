package customresources

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

// useIdentity takes what serves a resource with an identity over all logical clusters, or returns nil. If nobody binds
// it on this shard it is what an export of that identity says, provided that there is a definition of it: who claims an
// identity may list what is not there. Its storage is then open as long as somebody looks at it.
func (c *Catalog) useIdentity(ctx context.Context, gr schema.GroupResource, identity string) (*use, error) {
	if bound := c.Bindings.GetByIdentity(gr, identity); bound != nil && c.stored(bound) {
		u, err := c.invite(ctx, bound)
		if u != nil || err != nil {
			return u, err
		}
	}
	exported, err := c.Exported(ctx, gr, identity)
	if exported == nil || err != nil || !c.stored(exported) {
		return nil, err
	}
	return c.invite(ctx, exported)
}

// invite takes the content of a resource over all logical clusters, and keeps it until the use is given back.
func (c *Catalog) invite(ctx context.Context, resource *bindings.Resource) (*use, error) {
	if err := c.countGuest(*resource, 1); err != nil {
		c.seeOff(*resource)
		return nil, err
	}
	found := c.findGuest(resource)
	if found != nil {
		return found, nil
	}
	if err := c.readSchema(ctx, resource.GroupResource, resource.SchemaUID); err != nil {
		c.seeOff(*resource)
		if apierrors.IsServiceUnavailable(err) {
			return nil, nil
		}
		return nil, err
	}
	if found = c.findGuest(resource); found == nil {
		c.seeOff(*resource)
	}
	return found, nil
}

func (c *Catalog) findGuest(resource *bindings.Resource) *use {
	c.mu.RLock()
	defer c.mu.RUnlock()
	content := c.bound[resource.SchemaUID][*resource]
	if content == nil {
		return nil
	}
	content.users.Add(1)
	return &use{content: content, bound: resource, guest: true, key: placeKey{logicalcluster.Wildcard, resource.GroupResource}}
}

// seeOff gives back what invite took.
func (c *Catalog) seeOff(resource bindings.Resource) {
	if err := c.countGuest(resource, -1); err != nil && !errors.Is(err, errClosed) {
		klog.Background().Error(err, "Closing what nobody looks at any more", "resource", resource.GroupResource)
	}
}

func (c *Catalog) countGuest(resource bindings.Resource, more int) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	c.mu.Lock()
	if c.guests[resource] += more; c.guests[resource] == 0 {
		delete(c.guests, resource)
	}
	c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	return c.adapt(resource.SchemaUID)
}
