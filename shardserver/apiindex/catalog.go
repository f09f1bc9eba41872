package apiindex

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/workspacepath"
)

var (
	exports = apisv1alpha2.Resource("apiexports")
	schemas = apisv1alpha1.Resource("apiresourceschemas")

	errNoReference = errors.New("the reference names no export")
)

// Locate returns the logical cluster that a path leads to, or a Kubernetes NotFound error.
type Locate func(context.Context, logicalcluster.Path) (logicalcluster.Name, error)

// Catalog finds exports and their schemas, in whatever logical cluster of whatever shard they are. Objects come from the
// watch cache, or from what other shards have published, and are shared; of each export the catalog itself keeps under
// what it can be found. It is safe for concurrent use.
//
// Every method that returns an object fails with a Kubernetes NotFound error for what does not exist, and with
// ServiceUnavailable for what may exist on a shard of which nothing is known yet. The logical cluster of the context does
// not matter.
type Catalog struct {
	registry *storage.Registry
	exports  *storage.Reader[*apisv1alpha2.APIExport]
	schemas  *storage.Reader[*apisv1alpha1.APIResourceSchema]
	locate   Locate
	informer *informer.Informer[*apisv1alpha2.APIExport]

	mu          sync.RWMutex
	known       map[bindings.Export]entry
	paths       map[Reference]sets.Set[bindings.Export]
	identities  map[string]sets.Set[bindings.Export]
	subscribers []func(bindings.Export)
}

// entry is under what an export is found, and what its conditions say.
type entry struct {
	path       Reference
	identity   string
	conditions []ConditionStatus
}

// NewCatalog returns a catalog. Until Run has begun it finds exports by what Locate says, and none by identity.
func NewCatalog(registry *storage.Registry, locate Locate) *Catalog {
	c := &Catalog{
		registry:   registry,
		exports:    storage.NewReader[*apisv1alpha2.APIExport](registry, exports).Everywhere(),
		schemas:    storage.NewReader[*apisv1alpha1.APIResourceSchema](registry, schemas).Everywhere(),
		locate:     locate,
		known:      map[bindings.Export]entry{},
		paths:      map[Reference]sets.Set[bindings.Export]{},
		identities: map[string]sets.Set[bindings.Export]{},
	}
	update := func(_ context.Context, object *apisv1alpha2.APIExport) error { c.update(object); return nil }
	c.informer = informer.NewWithHandler(exports, c.exports.WatchAll, informer.EventHandler[*apisv1alpha2.APIExport]{
		OnReplace: func(_ context.Context, objects []*apisv1alpha2.APIExport, _ string) error {
			c.replace(objects)
			return nil
		},
		OnAdd:    update,
		OnUpdate: update,
		OnDelete: func(_ context.Context, object *apisv1alpha2.APIExport) error { c.delete(object); return nil },
	})
	return c
}

// Run follows all exports until the context ends. It is called once.
func (c *Catalog) Run(ctx context.Context) { c.informer.Run(ctx) }

// WaitForSync returns when every export that existed at the start is known.
func (c *Catalog) WaitForSync(ctx context.Context) error { return c.informer.WaitForSync(ctx) }

// Subscribe has the function called after an export came, changed or went. It must not block for long.
func (c *Catalog) Subscribe(changed func(bindings.Export)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribers = append(c.subscribers, changed)
}

// ExportOf returns the name of an export for package bindings.
func ExportOf(export *apisv1alpha2.APIExport) bindings.Export {
	return bindings.Export{Cluster: logicalcluster.Of(export), Name: export.Name}
}

// Get returns an export.
func (c *Catalog) Get(ctx context.Context, export bindings.Export) (*apisv1alpha2.APIExport, error) {
	return c.exports.Get(logicalcluster.With(ctx, export.Cluster), "", export.Name)
}

// ByPath returns the export that a reference leads to: its path is the export's canonical path (annotation kcp.io/path)
// or the name of its logical cluster. What the watch has not brought yet is asked for, so that an export is found as
// soon as its creation was answered.
func (c *Catalog) ByPath(ctx context.Context, reference Reference) (*apisv1alpha2.APIExport, error) {
	c.mu.RLock()
	found := sorted(c.paths[reference])
	c.mu.RUnlock()
	for _, export := range found {
		if object, err := c.Get(ctx, export); !apierrors.IsNotFound(err) {
			return object, err
		}
	}
	cluster, err := c.locate(ctx, reference.Path)
	if apierrors.IsNotFound(err) {
		if errors.Is(err, workspacepath.ErrElsewhere) {
			if err := c.complete(); err != nil {
				return nil, err
			}
		}
		return nil, apierrors.NewNotFound(exports, reference.String())
	}
	if err != nil {
		return nil, fmt.Errorf("finding APIExport %q: %w", reference, err)
	}
	return c.exports.GetLatest(logicalcluster.With(ctx, cluster), "", reference.Name)
}

// complete returns nil if the exports of all shards are known, else a ServiceUnavailable error.
func (c *Catalog) complete() error {
	if err := c.registry.Elsewhere().Known(exports); err != nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("it is not known yet which exports other shards have: %v", err))
	}
	return nil
}

// ByIdentity returns the exports with an identity, ordered by logical cluster and name. It fails while those of other
// shards are not known: each of them may set bounds.
func (c *Catalog) ByIdentity(ctx context.Context, hash string) ([]*apisv1alpha2.APIExport, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	c.mu.RLock()
	found := sorted(c.identities[hash])
	c.mu.RUnlock()
	objects := make([]*apisv1alpha2.APIExport, 0, len(found))
	for _, export := range found {
		object, err := c.Get(ctx, export)
		if apierrors.IsNotFound(err) {
			continue // the event that says so is on its way
		}
		if err != nil {
			return nil, fmt.Errorf("reading APIExport %q of %q: %w", export.Name, export.Cluster, err)
		}
		if object.Status.IdentityHash == hash {
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// Schema returns a schema.
func (c *Catalog) Schema(ctx context.Context, cluster logicalcluster.Name, name string) (*apisv1alpha1.APIResourceSchema, error) {
	return c.schemas.Get(logicalcluster.With(ctx, cluster), "", name)
}

// In returns the exports of a logical cluster.
func (c *Catalog) In(ctx context.Context, cluster logicalcluster.Name) ([]*apisv1alpha2.APIExport, error) {
	return c.exports.List(logicalcluster.With(ctx, cluster), "", nil)
}

// Sizes returns how many exports, references and identities are known: what the catalog's memory follows.
func (c *Catalog) Sizes() (known, references, identities int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.known), len(c.paths), len(c.identities)
}

func (c *Catalog) update(object *apisv1alpha2.APIExport) {
	export := ExportOf(object)
	c.mu.Lock()
	c.forget(export)
	c.remember(export, object)
	c.mu.Unlock()
	c.notify(export)
}

func (c *Catalog) delete(object *apisv1alpha2.APIExport) {
	export := ExportOf(object)
	c.mu.Lock()
	c.forget(export)
	c.mu.Unlock()
	c.notify(export)
}

// replace updates all exports and removes those that no longer exist.
func (c *Catalog) replace(objects []*apisv1alpha2.APIExport) {
	existing := sets.New[bindings.Export]()
	for _, object := range objects {
		existing.Insert(ExportOf(object))
		c.update(object)
	}
	var gone []bindings.Export
	c.mu.Lock()
	for export := range c.known {
		if !existing.Has(export) {
			c.forget(export)
			gone = append(gone, export)
		}
	}
	c.mu.Unlock()
	for _, export := range gone {
		c.notify(export)
	}
}

func (c *Catalog) notify(export bindings.Export) {
	c.mu.RLock()
	subscribers := c.subscribers
	c.mu.RUnlock()
	for _, changed := range subscribers {
		changed(export)
	}
}

func (c *Catalog) remember(export bindings.Export, object *apisv1alpha2.APIExport) {
	all := aliases(object)
	known := entry{path: all[len(all)-1], identity: object.Status.IdentityHash, conditions: conditionsOf(object)}
	c.known[export] = known
	for _, reference := range all {
		insert(c.paths, reference, export)
	}
	if known.identity != "" {
		insert(c.identities, known.identity, export)
	}
}

func (c *Catalog) forget(export bindings.Export) {
	known, ok := c.known[export]
	if !ok {
		return
	}
	delete(c.known, export)
	remove(c.paths, Reference{export.Cluster.Path(), export.Name}, export)
	remove(c.paths, known.path, export)
	remove(c.identities, known.identity, export)
}

func insert[K comparable, V comparable](into map[K]sets.Set[V], key K, value V) {
	if into[key] == nil {
		into[key] = sets.New[V]()
	}
	into[key].Insert(value)
}

func remove[K comparable, V comparable](from map[K]sets.Set[V], key K, value V) {
	if from[key].Delete(value); len(from[key]) == 0 {
		delete(from, key)
	}
}

func sorted(of sets.Set[bindings.Export]) []bindings.Export {
	return slices.SortedFunc(maps.Keys(of), func(a, b bindings.Export) int {
		return cmp.Or(cmp.Compare(a.Cluster.String(), b.Cluster.String()), cmp.Compare(a.Name, b.Name))
	})
}
