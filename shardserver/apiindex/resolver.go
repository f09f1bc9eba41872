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

// LocateCluster returns the logical cluster of a workspace path, or a Kubernetes NotFound error.
type LocateCluster func(context.Context, logicalcluster.Path) (logicalcluster.Name, error)

// Resolver finds exports and their schemas by logical cluster, workspace path or identity, on every shard. It returns
// shared objects of the watch cache or of the replicas of other shards; the resolver itself stores only the index keys
// of each export. It is safe for concurrent use.
//
// Methods that return an object fail with a Kubernetes NotFound error for an object that does not exist, and with
// ServiceUnavailable while the exports of another shard are not synced. They ignore the logical cluster of the context.
type Resolver struct {
	registry      *storage.Registry
	exports       *storage.Reader[*apisv1alpha2.APIExport]
	schemas       *storage.Reader[*apisv1alpha1.APIResourceSchema]
	locateCluster LocateCluster
	informer      *informer.Informer[*apisv1alpha2.APIExport]

	mu          sync.RWMutex
	entries     map[bindings.ExportKey]entry
	paths       map[Reference]sets.Set[bindings.ExportKey]
	identities  map[string]sets.Set[bindings.ExportKey]
	subscribers []func(bindings.ExportKey)
}

// entry holds the index keys and the condition statuses of an export.
type entry struct {
	path       Reference
	identity   string
	conditions []ConditionStatus
}

// NewResolver returns a resolver. Before Run is called it resolves references with locateCluster only, and finds no
// export by identity.
func NewResolver(registry *storage.Registry, locate LocateCluster) *Resolver {
	c := &Resolver{
		registry:      registry,
		exports:       storage.NewReader[*apisv1alpha2.APIExport](registry, exports).Global(),
		schemas:       storage.NewReader[*apisv1alpha1.APIResourceSchema](registry, schemas).Global(),
		locateCluster: locate,
		entries:       map[bindings.ExportKey]entry{},
		paths:         map[Reference]sets.Set[bindings.ExportKey]{},
		identities:    map[string]sets.Set[bindings.ExportKey]{},
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

// Run keeps the resolver up to date until the context is done. It is called once.
func (r *Resolver) Run(ctx context.Context) { r.informer.Run(ctx) }

// WaitForSync returns when every export that existed at the start is indexed.
func (r *Resolver) WaitForSync(ctx context.Context) error { return r.informer.WaitForSync(ctx) }

// Subscribe registers a function that is called after every add, update and delete of an export. It must not block.
func (r *Resolver) Subscribe(changed func(bindings.ExportKey)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subscribers = append(r.subscribers, changed)
}

// ExportKeyOf returns the key of an export.
func ExportKeyOf(export *apisv1alpha2.APIExport) bindings.ExportKey {
	return bindings.ExportKey{Cluster: logicalcluster.Of(export), Name: export.Name}
}

// Get returns an export.
func (r *Resolver) Get(ctx context.Context, export bindings.ExportKey) (*apisv1alpha2.APIExport, error) {
	return r.exports.Get(logicalcluster.With(ctx, export.Cluster), "", export.Name)
}

// Resolve returns the export of a reference, whose path is the export's canonical path (annotation kcp.io/path) or the
// name of its logical cluster. It falls back to a consistent read, so that an export is found as soon as its creation
// was acknowledged.
func (r *Resolver) Resolve(ctx context.Context, reference Reference) (*apisv1alpha2.APIExport, error) {
	r.mu.RLock()
	found := sortedKeys(r.paths[reference])
	r.mu.RUnlock()
	for _, export := range found {
		if object, err := r.Get(ctx, export); !apierrors.IsNotFound(err) {
			return object, err
		}
	}
	cluster, err := r.locateCluster(ctx, reference.Path)
	if apierrors.IsNotFound(err) {
		if errors.Is(err, workspacepath.ErrRemote) {
			if err := r.checkSynced(); err != nil {
				return nil, err
			}
		}
		return nil, apierrors.NewNotFound(exports, reference.String())
	}
	if err != nil {
		return nil, fmt.Errorf("finding APIExport %q: %w", reference, err)
	}
	return r.exports.GetLatest(logicalcluster.With(ctx, cluster), "", reference.Name)
}

// checkSynced returns a ServiceUnavailable error unless the exports of all shards are synced.
func (r *Resolver) checkSynced() error {
	if err := r.registry.RemoteStore().CheckSynced(exports); err != nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the exports of other shards are not synced yet: %v", err))
	}
	return nil
}

// ListByIdentity returns the exports with an identity, ordered by logical cluster and name. It fails while the exports
// of other shards are not synced, because each of them may carry a maximal permission policy.
func (r *Resolver) ListByIdentity(ctx context.Context, hash string) ([]*apisv1alpha2.APIExport, error) {
	if err := r.checkSynced(); err != nil {
		return nil, err
	}
	r.mu.RLock()
	found := sortedKeys(r.identities[hash])
	r.mu.RUnlock()
	objects := make([]*apisv1alpha2.APIExport, 0, len(found))
	for _, export := range found {
		object, err := r.Get(ctx, export)
		if apierrors.IsNotFound(err) {
			continue // deleted since it was indexed
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

// GetSchema returns an APIResourceSchema.
func (r *Resolver) GetSchema(ctx context.Context, cluster logicalcluster.Name, name string) (*apisv1alpha1.APIResourceSchema, error) {
	return r.schemas.Get(logicalcluster.With(ctx, cluster), "", name)
}

// GetLatestSchema is GetSchema with the consistency of a client's GET, for who must not miss one that was created just before.
func (r *Resolver) GetLatestSchema(ctx context.Context, cluster logicalcluster.Name, name string) (*apisv1alpha1.APIResourceSchema, error) {
	return r.schemas.GetLatest(logicalcluster.With(ctx, cluster), "", name)
}

// ListLatest is List with the consistency of a client's LIST.
func (r *Resolver) ListLatest(ctx context.Context, cluster logicalcluster.Name) ([]*apisv1alpha2.APIExport, error) {
	return r.exports.ListLatest(logicalcluster.With(ctx, cluster), "", nil)
}

// List returns the exports of a logical cluster.
func (r *Resolver) List(ctx context.Context, cluster logicalcluster.Name) ([]*apisv1alpha2.APIExport, error) {
	return r.exports.List(logicalcluster.With(ctx, cluster), "", nil)
}

// Sizes returns the number of indexed exports, references and identities, which bound the memory of the resolver.
func (r *Resolver) Sizes() (known, references, identities int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.entries), len(r.paths), len(r.identities)
}

func (r *Resolver) update(object *apisv1alpha2.APIExport) {
	export := ExportKeyOf(object)
	r.mu.Lock()
	r.removeEntry(export)
	r.addEntry(export, object)
	r.mu.Unlock()
	r.notify(export)
}

func (r *Resolver) delete(object *apisv1alpha2.APIExport) {
	export := ExportKeyOf(object)
	r.mu.Lock()
	r.removeEntry(export)
	r.mu.Unlock()
	r.notify(export)
}

// replace updates all exports and removes those that no longer exist.
func (r *Resolver) replace(objects []*apisv1alpha2.APIExport) {
	existing := sets.New[bindings.ExportKey]()
	for _, object := range objects {
		existing.Insert(ExportKeyOf(object))
		r.update(object)
	}
	var removed []bindings.ExportKey
	r.mu.Lock()
	for export := range r.entries {
		if !existing.Has(export) {
			r.removeEntry(export)
			removed = append(removed, export)
		}
	}
	r.mu.Unlock()
	for _, export := range removed {
		r.notify(export)
	}
}

func (r *Resolver) notify(export bindings.ExportKey) {
	r.mu.RLock()
	subscribers := r.subscribers
	r.mu.RUnlock()
	for _, changed := range subscribers {
		changed(export)
	}
}

func (r *Resolver) addEntry(export bindings.ExportKey, object *apisv1alpha2.APIExport) {
	all := referencesTo(object)
	known := entry{path: all[len(all)-1], identity: object.Status.IdentityHash, conditions: conditionsOf(object)}
	r.entries[export] = known
	for _, reference := range all {
		insert(r.paths, reference, export)
	}
	if known.identity != "" {
		insert(r.identities, known.identity, export)
	}
}

func (r *Resolver) removeEntry(export bindings.ExportKey) {
	known, ok := r.entries[export]
	if !ok {
		return
	}
	delete(r.entries, export)
	removeFrom(r.paths, Reference{export.Cluster.Path(), export.Name}, export)
	removeFrom(r.paths, known.path, export)
	removeFrom(r.identities, known.identity, export)
}

func insert[K comparable, V comparable](into map[K]sets.Set[V], key K, value V) {
	if into[key] == nil {
		into[key] = sets.New[V]()
	}
	into[key].Insert(value)
}

func removeFrom[K comparable, V comparable](from map[K]sets.Set[V], key K, value V) {
	if from[key].Delete(value); len(from[key]) == 0 {
		delete(from, key)
	}
}

func sortedKeys(of sets.Set[bindings.ExportKey]) []bindings.ExportKey {
	return slices.SortedFunc(maps.Keys(of), func(a, b bindings.ExportKey) int {
		return cmp.Or(cmp.Compare(a.Cluster.String(), b.Cluster.String()), cmp.Compare(a.Name, b.Name))
	})
}
