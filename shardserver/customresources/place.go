package customresources

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

// placeKey names a resource in a logical cluster, which is the wildcard for requests over all.
type placeKey struct {
	cluster  logicalcluster.Name
	resource schema.GroupResource
}

// place is what requests do with a resource in one logical cluster at this moment. A definition has one; for a bound
// resource there is one while requests write or watch there.
type place struct {
	// users are the requests that a place of a bound resource is there for.
	users int
	// writers are the requests that write objects and began before the resource was terminating.
	writers atomic.Int64
	// watches are the open watches of clients; nil without any.
	watches map[*watched]struct{}
}

// watched is a watch that must end when what it watches changes or goes.
type watched struct {
	end func()
	// bound is what was bound when the watch began, nil for one of a definition of the cluster itself.
	bound *bindings.Resource
}

// endWatches ends all watches. The clients list again, and see the objects as they are defined now.
func (p *place) endWatches() {
	for w := range p.watches {
		w.end()
	}
	p.watches = nil
}

// enter returns the place of a bound resource with one user more.
func (c *Catalog) enter(key placeKey) *place {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.enterLocked(key)
}

func (c *Catalog) enterLocked(key placeKey) *place {
	at := c.places[key]
	if at == nil {
		at = &place{}
		c.places[key] = at
	}
	at.users++
	return at
}

// leave takes one user from a place, and forgets it after the last.
func (c *Catalog) leave(key placeKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaveLocked(key)
}

func (c *Catalog) leaveLocked(key placeKey) {
	at := c.places[key]
	if at.users--; at.users == 0 {
		delete(c.places, key)
	}
}

// binds tells whether a logical cluster binds just this resource now. Over all of them nobody needs to.
func (c *Catalog) binds(key placeKey, resource *bindings.Resource) bool {
	if key.cluster.IsWildcard() {
		return true
	}
	b, ok := c.Bindings.Get(logicalcluster.With(context.Background(), key.cluster), key.resource)
	return ok && *b.Resource == *resource
}
