package customresources

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	apiextensionsinternal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Segment stands in the keys of objects of plain definitions, where those of exported ones have an identity.
const Segment = "customresources"

var errClosed = errors.New("the server is shutting down")

// Config is what a catalog works with.
type Config struct {
	Registry *storage.Registry
	Shared   *apiextensions.Shared
	Pool     *crdstorage.Pool
	// CompiledIn are the resources of the shard's own types. Where a logical cluster shows one, nothing else can be served
	// under its name.
	CompiledIn sets.Set[schema.GroupResource]
	// Reserved are the resources of types of its own that a shard keeps as objects of plain definitions, whether it serves
	// them now or only with other feature gates: what a tenant left in their place would be taken for one of them then, and
	// one that cannot be read keeps all from being served.
	Reserved sets.Set[schema.GroupResource]
	// Bindings tells what logical clusters have bound.
	Bindings *bindings.Index
	// Exported returns a resource as some export of this shard with an identity has it now, or nil.
	Exported func(ctx context.Context, gr schema.GroupResource, identity string) (*bindings.Resource, error)
}

// Catalog knows what logical clusters serve besides what is compiled in: by definitions of their own, and by bindings to
// exports, whose definitions lie in system:bound-crds. It follows all definitions through one watch (Run), and through
// requests that found one before the watch brought it. It owns the contents and the storages that they need, and
// implements storage.Local. Per definition it keeps a few words; all else is per content or per storage.
type Catalog struct {
	Config
	reader   *storage.Reader[*apiextensionsinternal.CustomResourceDefinition]
	informer *informer.Informer[metav1.Object]
	compile  func(*Content) (*compiled, error)

	// changing is held while a change is made, which may have to open a storage; mu guards what follows and is never held
	// for longer than it takes to read or write it. Both: changing first.
	changing sync.Mutex
	closed   bool
	mu       sync.RWMutex
	clusters map[logicalcluster.Name]map[string]*definition
	contents map[contentKey]*Content
	storages map[storageKey]*opened
	// schemas are the definitions of system:bound-crds, bound the contents of what is bound with one, guests how many
	// requests use what no cluster binds.
	schemas map[types.UID]*boundSchema
	bound   map[types.UID]map[bindings.Resource]*Content
	guests  map[bindings.Resource]int
	// places are where requests watch or write bound resources now.
	places map[placeKey]*place
	// seen is the resource version up to which the watch has brought every change.
	seen uint64
}

// NewCatalog returns a catalog that knows nothing until Run has begun, but what requests make it look for.
func NewCatalog(cfg Config) *Catalog {
	c := &Catalog{
		Config:   cfg,
		reader:   storage.NewReader[*apiextensionsinternal.CustomResourceDefinition](cfg.Registry, apiextensions.Definitions),
		clusters: map[logicalcluster.Name]map[string]*definition{},
		contents: map[contentKey]*Content{},
		storages: map[storageKey]*opened{},
		schemas:  map[types.UID]*boundSchema{},
		bound:    map[types.UID]map[bindings.Resource]*Content{},
		guests:   map[bindings.Resource]int{},
		places:   map[placeKey]*place{},
	}
	c.informer = informer.NewWithHandler(apiextensions.Definitions, c.watchAll, informer.EventHandler[metav1.Object]{
		OnReplace: c.onReplace, OnAdd: c.onUpdate, OnUpdate: c.onUpdate, OnDelete: c.onDelete, OnBookmark: c.saw,
	})
	cfg.Bindings.Subscribe(c.bindingChanged)
	return c
}

// shadowed tells whether the context's logical cluster serves a compiled-in resource under a name, whatever definition
// of that name it has.
func (c *Catalog) shadowed(ctx context.Context, gr schema.GroupResource) bool {
	return c.CompiledIn.Has(gr) && c.Registry.Shows(ctx, gr)
}

// Barred tells whether a resource can nowhere be defined, because its objects would lie among those of a compiled-in
// resource, where they could be taken for one another. Such a definition may exist; it is never served, and has no
// objects.
func (c *Catalog) Barred(gr schema.GroupResource) bool { return c.barred(storageKey{gr, Segment}) }

func (c *Catalog) barred(key storageKey) bool {
	if key.segment == Segment && c.Reserved.Has(key.resource) {
		return true
	}
	builtin, err := c.Registry.Get(key.resource)
	if err != nil {
		return false // not stored by the shard itself
	}
	return strings.HasPrefix(crdstorage.Prefix(key.resource, key.segment)+"/", strings.TrimSuffix(builtin.Prefix, "/")+"/")
}

// Served is what a logical cluster serves by a definition or a binding.
type Served struct {
	// Content is what it has in common with the same elsewhere.
	Content *Content
	// Terminating says that nothing can be created any more.
	Terminating bool
}

// Served returns what the context's logical cluster serves by its definitions and bindings, ordered by group and name.
// What two clusters show of it (discovery, OpenAPI) is the same if the hashes of the contents and the flags are.
func (c *Catalog) Served(ctx context.Context) []Served {
	cluster, _ := logicalcluster.From(ctx)
	all := c.Bindings.List(ctx)
	c.mu.RLock()
	defer c.mu.RUnlock()
	served := make([]Served, 0, len(all)+len(c.clusters[cluster]))
	taken := sets.New[schema.GroupResource]()
	for _, b := range all {
		taken.Insert(b.GroupResource)
		if content := c.bound[b.SchemaUID][*b.Resource]; content != nil && !c.shadowed(ctx, b.GroupResource) {
			served = append(served, Served{content, b.Terminating})
		}
	}
	for _, d := range c.clusters[cluster] {
		if d.content != nil && !taken.Has(d.resource) && !c.shadowed(ctx, d.resource) {
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
	served := c.Served(ctx)
	resources := make([]*storage.Resource, 0, len(served))
	for _, s := range served {
		resources = append(resources, s.Content.resource)
	}
	return resources, nil
}

// Get implements storage.Local.
func (c *Catalog) Get(ctx context.Context, gr schema.GroupResource) (*storage.Resource, error) {
	cluster, _ := logicalcluster.From(ctx)
	b, bound := c.Bindings.Get(ctx, gr)
	c.mu.RLock()
	defer c.mu.RUnlock()
	if bound {
		if content := c.bound[b.SchemaUID][*b.Resource]; content != nil && !c.shadowed(ctx, gr) {
			return content.resource, nil
		}
		return nil, nil
	}
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
	return definitions + len(c.schemas), len(c.contents), len(c.storages)
}

// Close ends everything, at the end of the process.
func (c *Catalog) Close() {
	c.changing.Lock()
	defer c.changing.Unlock()
	c.closed = true
	c.mu.Lock()
	contents, storages := c.contents, c.storages
	c.contents, c.storages, c.clusters = map[contentKey]*Content{}, map[storageKey]*opened{}, map[logicalcluster.Name]map[string]*definition{}
	c.schemas, c.bound = map[types.UID]*boundSchema{}, map[types.UID]map[bindings.Resource]*Content{}
	c.mu.Unlock()
	for _, content := range contents {
		content.drop()
	}
	for _, known := range storages {
		c.Registry.RemoveCustom(known.storage.Prefix())
		known.release()
	}
}
