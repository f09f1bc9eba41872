package customresources

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

// boundSchema is a definition of system:bound-crds: what resources that are bound with one schema look like.
type boundSchema struct{ observed }

// servable tells whether resources that are bound with the schema can be served.
func (s *boundSchema) servable() bool { return s != nil && s.served }

// unavailable is the answer where something is bound that cannot be served: its definition is missing, or not
// established yet.
func unavailable(gr schema.GroupResource) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("%s is currently unavailable", gr))
}

// stored tells whether a bound resource needs a content here: others are served compiled in, by a virtual workspace, or,
// where they would lie among the objects of a compiled-in resource, not at all.
func (c *Catalog) stored(r *bindings.Resource) bool {
	return !r.Virtual && !c.native(r) && r.Identity != "" && !c.barred(storageKey{r.GroupResource, r.Identity})
}

// native tells whether a bound resource is one that is compiled in.
func (c *Catalog) native(r *bindings.Resource) bool {
	return c.hasIdentity(r.GroupResource, r.Identity)
}

// hasIdentity tells whether a compiled-in resource is stored with an identity.
func (c *Catalog) hasIdentity(gr schema.GroupResource, identity string) bool {
	builtin, err := c.Registry.Get(gr)
	return err == nil && identity != "" && builtin.Identity() == identity
}

// useBound takes what serves a bound resource, for a request to one logical cluster. Without one it fails.
func (c *Catalog) useBound(ctx context.Context, b bindings.BoundResource, writes bool) (*use, error) {
	if identity := bindings.IdentityFrom(ctx); identity != "" && identity != b.Identity {
		return nil, nil
	}
	if c.native(b.Resource) {
		return nil, nil
	}
	if !c.stored(b.Resource) {
		return nil, unavailable(b.GroupResource)
	}
	if u := c.findBound(ctx, b, writes); u != nil {
		return u, nil
	}
	if err := c.readSchema(ctx, b.GroupResource, b.SchemaUID); err != nil {
		return nil, err
	}
	if u := c.findBound(ctx, b, writes); u != nil {
		return u, nil
	}
	return nil, unavailable(b.GroupResource)
}

// findBound takes the content of a bound resource, or returns nil.
func (c *Catalog) findBound(ctx context.Context, b bindings.BoundResource, writes bool) *use {
	cluster, _ := logicalcluster.From(ctx)
	u := &use{bound: b.Resource, key: placeKey{cluster, b.GroupResource}}
	if writes {
		// Counted before the binding is looked at (again): whoever sees it terminating, and no writer, knows that none will come.
		at := c.enter(u.key)
		at.writers.Add(1)
		now, ok := c.Bindings.Get(ctx, b.GroupResource)
		if b.Terminating = b.Terminating || !ok || now.Terminating; b.Terminating {
			at.writers.Add(-1)
			c.leave(u.key)
		} else {
			u.place = at
		}
	}
	u.terminating = b.Terminating
	c.mu.RLock()
	if u.content = c.bound[b.SchemaUID][*b.Resource]; u.content != nil {
		u.content.users.Add(1)
	}
	c.mu.RUnlock()
	if u.content == nil {
		c.done(u)
		return nil
	}
	return u
}

// readSchema takes in a definition of system:bound-crds that the watch has not brought.
func (c *Catalog) readSchema(ctx context.Context, gr schema.GroupResource, uid types.UID) error {
	object, err := c.reader.GetLatest(logicalcluster.With(ctx, logicalcluster.BoundCRDs), "", string(uid))
	if apierrors.IsNotFound(err) {
		return unavailable(gr)
	}
	if err != nil {
		return fmt.Errorf("reading the definition of the bound resource %s: %w", gr, err)
	}
	o, err := observe(c.Shared, object)
	if err != nil {
		return err
	}
	return c.update(o, true)
}

// updateSchema takes in what a definition of system:bound-crds says. The lock of changes is held.
func (c *Catalog) updateSchema(o observed, byRequest bool) error {
	uid := types.UID(o.name)
	c.mu.Lock()
	known := c.schemas[uid]
	stale := known == nil && byRequest && o.version <= c.seen
	if !stale && (known == nil || known.version < o.version) {
		c.schemas[uid] = &boundSchema{o}
	}
	c.mu.Unlock()
	return c.adapt(uid)
}

// removeSchema forgets a definition of system:bound-crds. The lock of changes is held.
func (c *Catalog) removeSchema(k key, version uint64) {
	uid := types.UID(k.name)
	c.mu.Lock()
	if known := c.schemas[uid]; known == nil || known.version > version {
		c.mu.Unlock()
		return
	}
	delete(c.schemas, uid)
	c.mu.Unlock()
	if err := c.adapt(uid); err != nil {
		klog.Background().Error(err, "Forgetting the definition of bound resources", "definition", k.name)
	}
}

// adapt makes the contents of a schema those that its definition, and those who bind it, ask for. The lock of changes is
// held, and all that it looks at is read under it: after any change, the last call sees the whole of it.
func (c *Catalog) adapt(uid types.UID) error {
	wanted := map[bindings.Resource]bool{}
	for _, resource := range c.Bindings.ListBySchema(uid) {
		wanted[*resource] = true
	}
	c.mu.RLock()
	for guest := range c.guests {
		wanted[guest] = wanted[guest] || guest.SchemaUID == uid
	}
	known, have := c.schemas[uid], maps.Clone(c.bound[uid])
	c.mu.RUnlock()
	for resource, content := range have {
		if !wanted[resource] || !known.servable() || content.Hash != known.hash {
			c.unbind(resource)
			delete(have, resource)
		}
	}
	if !known.servable() {
		return nil
	}
	var failed []error
	for resource, is := range wanted {
		if is && have[resource] == nil && resource.GroupResource == known.resource && c.stored(&resource) {
			failed = append(failed, c.bind(resource, known.observed))
		}
	}
	return errors.Join(failed...)
}

// bind opens what serves a bound resource. The lock of changes is held.
func (c *Catalog) bind(resource bindings.Resource, o observed) error {
	if err := c.open(storageKey{resource.GroupResource, resource.Identity}, o); err != nil {
		return err
	}
	content := c.contentOf(o, resource.Identity)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bound[resource.SchemaUID] == nil {
		c.bound[resource.SchemaUID] = map[bindings.Resource]*Content{}
	}
	c.bound[resource.SchemaUID][resource] = content
	return nil
}

// unbind closes what served a bound resource. The lock of changes is held.
func (c *Catalog) unbind(resource bindings.Resource) {
	c.mu.Lock()
	content := c.bound[resource.SchemaUID][resource]
	if delete(c.bound[resource.SchemaUID], resource); len(c.bound[resource.SchemaUID]) == 0 {
		delete(c.bound, resource.SchemaUID)
	}
	for key, at := range c.places {
		if key.resource == resource.GroupResource {
			at.endBound(func(bound *bindings.Resource) bool { return *bound != resource })
		}
	}
	c.mu.Unlock()
	c.release(content)
	c.close(storageKey{resource.GroupResource, resource.Identity})
}

// endBound ends the watches of what does not stay.
func (p *place) endBound(stays func(*bindings.Resource) bool) {
	for w := range p.watches {
		if w.bound != nil && !stays(w.bound) {
			delete(p.watches, w)
			w.end()
		}
	}
}

// bindingChanged takes in that a logical cluster binds something else than before.
func (c *Catalog) bindingChanged(change bindings.Change) {
	change.Resources = slices.DeleteFunc(slices.Clone(change.Resources), func(r *bindings.Resource) bool { return r.Virtual || c.native(r) })
	if len(change.Resources) == 0 {
		return // as for every new workspace
	}
	c.changing.Lock()
	defer c.changing.Unlock()
	if c.closed {
		return
	}
	for _, resource := range change.Resources {
		if err := c.adapt(resource.SchemaUID); err != nil {
			klog.Background().Error(err, "Serving a bound resource", "resource", resource.GroupResource, "export", resource.Export)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range change.Resources {
		key := placeKey{change.Cluster, resource.GroupResource}
		if at := c.places[key]; at != nil {
			at.endBound(func(bound *bindings.Resource) bool { return c.binds(key, bound) })
		}
		// What the cluster defines itself is covered by what it binds.
		if d := c.clusters[change.Cluster][resource.GroupResource.String()]; d != nil && len(d.watches) > 0 && c.binds(key, resource) {
			d.endWatches()
		}
	}
}
