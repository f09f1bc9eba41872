package customresources

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

// use is what a request does with a content.
type use struct {
	content     *Content
	terminating bool
	// place is counted while the request may write, nil else; definition says where it is counted for definitions of the
	// cluster itself. Else it is a bound resource.
	place      *place
	definition *definition
	key        placeKey
	bound      *bindings.Resource
	guest      bool
}

// use finds what serves a resource in the context's logical cluster, for a request that may write or not, or returns
// nil. What is bound comes before what the cluster defines itself; a request that names an identity finds nothing else.
// Where the watches have not brought it, bindings and definitions themselves are asked, so that what a client saw bound
// or established is found. Give it back with done.
func (c *Catalog) use(ctx context.Context, gr schema.GroupResource, writes bool) (*use, error) {
	if b, ok := c.Bindings.Get(ctx, gr); ok {
		return c.useBound(ctx, b, writes)
	}
	identified := bindings.IdentityFrom(ctx) != ""
	if !identified {
		if u := c.find(ctx, gr, writes); u != nil {
			return u, nil
		}
	}
	b, ok, err := c.Bindings.GetLatest(ctx, gr)
	if err != nil {
		return nil, err
	}
	if ok {
		return c.useBound(ctx, b, writes)
	}
	if identified {
		return nil, nil
	}
	return c.useOwn(ctx, gr, writes)
}

// useOwn is use of what the context's logical cluster defines itself, whether or not it is covered by what it binds.
func (c *Catalog) useOwn(ctx context.Context, gr schema.GroupResource, writes bool) (*use, error) {
	if u := c.find(ctx, gr, writes); u != nil {
		return u, nil
	}
	if len(content.IsPathSegmentName(gr.String())) > 0 {
		return nil, nil // no definition can have such a name
	}
	object, err := c.reader.GetLatest(ctx, "", gr.String())
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the definition of %s: %w", gr, err)
	}
	o, err := observe(c.Shared, object)
	if err != nil {
		return nil, err
	}
	if err := c.update(o, true); err != nil {
		return nil, err
	}
	return c.find(ctx, gr, writes), nil
}

// find takes what a definition of the context's logical cluster serves, or returns nil.
func (c *Catalog) find(ctx context.Context, gr schema.GroupResource, writes bool) *use {
	cluster, _ := logicalcluster.From(ctx)
	c.mu.RLock()
	defer c.mu.RUnlock()
	d := c.clusters[cluster][gr.String()]
	if d == nil || d.content == nil {
		return nil
	}
	d.content.users.Add(1)
	u := &use{content: d.content, terminating: d.terminating, definition: d}
	if writes && !d.terminating {
		u.place = &d.place
		d.writers.Add(1)
	}
	return u
}

// done gives back what a request used.
func (c *Catalog) done(u *use) {
	if u.place != nil {
		u.place.writers.Add(-1)
		if u.definition == nil {
			c.leave(u.key)
		}
	}
	c.release(u.content)
	if u.guest {
		c.seeOff(*u.bound)
	}
}

// watch registers what ends a watch when what it watches changes or goes, and returns what forgets it again. If it has
// changed since, the watch ends at once.
func (c *Catalog) watch(u *use, end func()) (forget func()) {
	w := &watched{end: end, bound: u.bound}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.current(u) {
		end()
		return func() {}
	}
	var at *place
	if u.definition != nil {
		at = &u.definition.place
	} else {
		at = c.enterLocked(u.key)
	}
	if at.watches == nil {
		at.watches = map[*watched]struct{}{}
	}
	at.watches[w] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(at.watches, w)
		if u.definition == nil {
			c.leaveLocked(u.key)
		}
	}
}

// current tells whether a request would find the same now. The lock is held.
func (c *Catalog) current(u *use) bool {
	if u.definition != nil {
		return u.definition.content == u.content
	}
	return c.bound[u.bound.SchemaUID][*u.bound] == u.content && c.binds(u.key, u.bound)
}
