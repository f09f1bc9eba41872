package customresources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apiextensionsinternal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	"github.com/atoll-dev/atoll/shardserver/customresources/raw"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Segment stands in the keys of objects of plain definitions, where those of exported ones have an identity.
const Segment = "customresources"

var errClosed = errors.New("the server is shutting down")

// Catalog knows the definitions of all logical clusters. It follows them through one watch (Run), and through requests
// that found a definition before the watch brought it. It owns the contents and the storages that they need, and
// implements storage.Local. Per definition it keeps a few words; all else is per content or per group-resource.
type Catalog struct {
	registry *storage.Registry
	reader   *storage.Reader[*apiextensionsinternal.CustomResourceDefinition]
	shared   *apiextensions.Shared
	pool     *raw.Pool
	// compiledIn are the resources of the shard's own types.
	compiledIn sets.Set[schema.GroupResource]
	compile    func(*Content) (*compiled, error)
	synced     chan struct{}
	once       sync.Once

	// changing is held while a change is made, which may have to open a storage; mu guards what follows and is never held
	// for longer than it takes to read or write it. Both: changing first.
	changing sync.Mutex
	closed   bool
	mu       sync.RWMutex
	clusters map[logicalcluster.Name]map[string]*definition
	contents map[apiextensions.Hash]*Content
	storages map[schema.GroupResource]*opened
	// seen is the resource version up to which the watch has brought every change.
	seen uint64
}

// opened is a storage and how many definitions are there for its resource.
type opened struct {
	storage     *raw.Storage
	definitions int
	release     func()
}

// NewCatalog returns a catalog that knows nothing until Run has begun, but what requests make it look for. What is
// compiled in and shown by a logical cluster cannot be defined there.
func NewCatalog(registry *storage.Registry, shared *apiextensions.Shared, pool *raw.Pool, compiledIn sets.Set[schema.GroupResource]) *Catalog {
	return &Catalog{
		compiledIn: compiledIn,
		registry:   registry,
		reader:     storage.NewReader[*apiextensionsinternal.CustomResourceDefinition](registry, apiextensions.Definitions),
		shared:     shared,
		pool:       pool,
		synced:     make(chan struct{}),
		clusters:   map[logicalcluster.Name]map[string]*definition{},
		contents:   map[apiextensions.Hash]*Content{},
		storages:   map[schema.GroupResource]*opened{},
	}
}

// shadowed tells whether the context's logical cluster serves a compiled-in resource under a name, whatever definition
// of that name it has.
func (c *Catalog) shadowed(ctx context.Context, gr schema.GroupResource) bool {
	return c.compiledIn.Has(gr) && c.registry.Shows(ctx, gr)
}

// Barred tells whether a resource can nowhere be defined, because its objects would lie among those of a compiled-in
// resource, where they could be taken for one another. Such a definition may exist; it is never served, and has no
// objects.
func (c *Catalog) Barred(gr schema.GroupResource) bool {
	builtin, err := c.registry.Get(gr)
	if err != nil {
		return false // not stored by the shard itself
	}
	own := "/" + gr.Group + "/" + gr.Resource + "/" + Segment + "/"
	return strings.HasPrefix(own, strings.TrimSuffix(builtin.Prefix, "/")+"/")
}

// Served is a definition that a logical cluster serves.
type Served struct {
	// Content is what it has in common with equal definitions elsewhere.
	Content *Content
	// Terminating says that nothing can be created any more.
	Terminating bool
}

// Served returns what the definitions of the context's logical cluster serve, ordered by group and name. What two
// clusters show of it (discovery, OpenAPI) is the same if the hashes of the contents and the flags are.
func (c *Catalog) Served(ctx context.Context) []Served {
	cluster, _ := logicalcluster.From(ctx)
	c.mu.RLock()
	defer c.mu.RUnlock()
	served := make([]Served, 0, len(c.clusters[cluster]))
	for _, d := range c.clusters[cluster] {
		if d.content != nil && !c.shadowed(ctx, d.resource) {
			served = append(served, Served{d.content, d.terminating})
		}
	}
	slices.SortFunc(served, func(a, b Served) int {
		x, y := a.Content.GroupResource(), b.Content.GroupResource()
		return cmp.Or(cmp.Compare(x.Group, y.Group), cmp.Compare(x.Resource, y.Resource))
	})
	return served
}

// In implements storage.Local.
func (c *Catalog) In(ctx context.Context) ([]*storage.Resource, error) {
	cluster, _ := logicalcluster.From(ctx)
	c.mu.RLock()
	defer c.mu.RUnlock()
	resources := make([]*storage.Resource, 0, len(c.clusters[cluster]))
	for _, d := range c.clusters[cluster] {
		if d.content != nil && !c.shadowed(ctx, d.resource) {
			resources = append(resources, d.content.resource)
		}
	}
	return resources, nil
}

// Get implements storage.Local.
func (c *Catalog) Get(ctx context.Context, gr schema.GroupResource) (*storage.Resource, error) {
	cluster, _ := logicalcluster.From(ctx)
	c.mu.RLock()
	defer c.mu.RUnlock()
	if d := c.clusters[cluster][gr.String()]; d != nil && d.content != nil && !c.shadowed(ctx, gr) {
		return d.content.resource, nil
	}
	return nil, nil
}

// Sizes returns how many definitions, contents and storages are known: what the catalog's memory follows.
func (c *Catalog) Sizes() (definitions, contents, storages int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, of := range c.clusters {
		definitions += len(of)
	}
	return definitions, len(c.contents), len(c.storages)
}

// use is a definition in the hands of a request.
type use struct {
	content     *Content
	terminating bool
	// writes says that the definition counts it among its writers.
	writes     bool
	definition *definition
}

// use finds what serves a resource in the context's logical cluster, for a request that may write or not, or returns
// nil. Where the watch has not brought it, the definition itself is asked, so that what a client saw established is
// found. Give it back with done.
func (c *Catalog) use(ctx context.Context, gr schema.GroupResource, writes bool) (*use, error) {
	cluster, _ := logicalcluster.From(ctx)
	name := gr.String()
	if u := c.find(cluster, name, writes); u != nil {
		return u, nil
	}
	object, err := c.reader.GetLatest(ctx, "", name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the definition of %s: %w", gr, err)
	}
	o, err := observe(c.shared, object)
	if err != nil {
		return nil, err
	}
	if err := c.update(o, true); err != nil {
		return nil, err
	}
	return c.find(cluster, name, writes), nil
}

func (c *Catalog) find(cluster logicalcluster.Name, name string, writes bool) *use {
	c.mu.RLock()
	defer c.mu.RUnlock()
	d := c.clusters[cluster][name]
	if d == nil || d.content == nil {
		return nil
	}
	d.content.users.Add(1)
	u := &use{content: d.content, terminating: d.terminating, writes: writes && !d.terminating, definition: d}
	if u.writes {
		d.writers.Add(1)
	}
	return u
}

func (c *Catalog) done(u *use) {
	if u.writes {
		u.definition.writers.Add(-1)
	}
	c.release(u.content)
}

// watch registers what ends a watch when the definition in use changes or goes, and returns what forgets it again. If
// the definition has changed since, the watch ends at once.
func (c *Catalog) watch(u *use, end func()) (forget func()) {
	w := &watched{end: end}
	c.mu.Lock()
	defer c.mu.Unlock()
	if u.definition.content != u.content {
		end()
		return func() {}
	}
	if u.definition.watches == nil {
		u.definition.watches = map[*watched]struct{}{}
	}
	u.definition.watches[w] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(u.definition.watches, w)
	}
}

// release takes one user from a content, and drops it after the last.
func (c *Catalog) release(content *Content) {
	if content == nil || content.users.Add(-1) > 0 {
		return
	}
	c.mu.Lock()
	unused := content.users.Load() == 0 // nobody took it up again
	if unused && c.contents[content.Hash] == content {
		delete(c.contents, content.Hash)
	}
	c.mu.Unlock()
	if unused {
		content.drop()
	}
}

// update takes in what a definition says. A request may have read something that the watch has seen the end of: what is
// older than the watch and not known is gone.
func (c *Catalog) update(o observed, byRequest bool) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	if c.closed {
		return errClosed
	}
	c.mu.RLock()
	d, stale := c.clusters[o.cluster][o.name], byRequest && o.version <= c.seen
	c.mu.RUnlock()
	switch {
	case d == nil && stale:
		return nil
	case d == nil && c.Barred(o.resource):
		d = &definition{resource: o.resource}
	case d == nil:
		if err := c.open(o); err != nil {
			return err
		}
		d = &definition{resource: o.resource, opened: true}
	case d.version >= o.version:
		return nil
	}
	var content *Content
	if o.served && d.opened {
		content = c.contentOf(o)
	}
	c.mu.Lock()
	old := d.content
	d.version, d.terminating, d.content = o.version, o.terminating, content
	if old != content {
		d.endWatches()
	}
	if c.clusters[o.cluster] == nil {
		c.clusters[o.cluster] = map[string]*definition{}
	}
	c.clusters[o.cluster][o.name] = d
	c.mu.Unlock()
	c.release(old)
	return nil
}

// remove forgets a definition whose object went, unless there is a younger one.
func (c *Catalog) remove(k key, version uint64) {
	c.changing.Lock()
	defer c.changing.Unlock()
	c.mu.Lock()
	d := c.clusters[k.cluster][k.name]
	if d == nil || d.version > version {
		c.mu.Unlock()
		return
	}
	delete(c.clusters[k.cluster], k.name)
	if len(c.clusters[k.cluster]) == 0 {
		delete(c.clusters, k.cluster)
	}
	content := d.content
	d.content = nil
	d.endWatches()
	c.mu.Unlock()
	c.release(content)
	if d.opened {
		c.close(d.resource)
	}
}

// contentOf returns the content of a definition with one user more. Its storage is open.
func (c *Catalog) contentOf(o observed) *Content {
	c.mu.Lock()
	defer c.mu.Unlock()
	content, store := c.contents[o.hash], c.storages[o.resource].storage
	// A request that is still under way may hold the content of definitions that are all gone, and so is their storage.
	if content == nil || content.store != store {
		content = &Content{
			Hash:     o.hash,
			store:    store,
			spec:     o.object.Spec,
			names:    o.object.Status.AcceptedNames,
			resource: resourceOf(o.object, store.Store(), store.Prefix()),
			compile:  c.compile,
		}
		c.contents[o.hash] = content
	}
	content.users.Add(1)
	return content
}

// open makes sure that the storage of a definition's resource is there, and counts the definition.
func (c *Catalog) open(o observed) error {
	c.mu.Lock()
	known := c.storages[o.resource]
	if known != nil {
		known.definitions++
	}
	c.mu.Unlock()
	if known != nil {
		return nil
	}
	store, release, err := c.pool.Acquire(o.resource, Segment)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.storages[o.resource] = &opened{storage: store, definitions: 1, release: release}
	c.mu.Unlock()
	c.registry.AddCustom(resourceOf(o.object, store.Store(), store.Prefix()))
	return nil
}

// close counts a definition less, and closes the storage after the last. Nothing is in it then: a definition goes after
// its instances.
func (c *Catalog) close(gr schema.GroupResource) {
	c.mu.Lock()
	known := c.storages[gr]
	if known == nil {
		c.mu.Unlock()
		klog.Background().Error(nil, "A definition had no storage", "resource", gr)
		return
	}
	known.definitions--
	last := known.definitions == 0
	if last {
		delete(c.storages, gr)
	}
	c.mu.Unlock()
	if last {
		c.registry.RemoveCustom(known.storage.Prefix())
		known.release()
	}
}

// storage returns the storage of a resource that some logical cluster defines, or nil.
func (c *Catalog) storage(gr schema.GroupResource) *raw.Storage {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if known := c.storages[gr]; known != nil {
		return known.storage
	}
	return nil
}

// storageOf returns the storage of a content.
func (c *Catalog) storageOf(content *Content) (*raw.Storage, error) {
	if found := c.storage(content.GroupResource()); found != nil && found == content.store {
		return found, nil
	}
	return nil, fmt.Errorf("the last definition of %s is gone", content.GroupResource())
}

// Close ends everything, at the end of the process.
func (c *Catalog) Close() {
	c.changing.Lock()
	defer c.changing.Unlock()
	c.closed = true
	c.mu.Lock()
	contents, storages := c.contents, c.storages
	c.contents, c.storages, c.clusters = map[apiextensions.Hash]*Content{}, map[schema.GroupResource]*opened{}, map[logicalcluster.Name]map[string]*definition{}
	c.mu.Unlock()
	for _, content := range contents {
		content.drop()
	}
	for _, known := range storages {
		c.registry.RemoveCustom(known.storage.Prefix())
		known.release()
	}
}
