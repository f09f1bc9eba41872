package crdregistry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apiextensionsinternal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
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

// Segment is the key segment of the objects of definitions that a logical cluster has itself. Objects of exported
// resources have the identity of the export in its place.
const Segment = "customresources"

var errClosed = errors.New("the server is shutting down")

// Config has what a Registry depends on.
type Config struct {
	// Resources is the registry of the stored resources of the shard, where the Registry adds and removes its storages.
	Resources *storage.Registry
	Specs     *apiextensions.SpecInterner
	Pool      *crdstorage.Pool
	// Compile creates the handlers of a compiled CRD.
	Compile Compiler
	// BuiltIn are the resources of the shard's compiled-in types. Where a logical cluster serves one, it serves no
	// definition of that name.
	BuiltIn sets.Set[schema.GroupResource]
	// Reserved are resources of compiled-in types that a shard stores under Segment, whether or not its feature gates
	// serve them now. A tenant's objects in their place would be decoded as those types when the gate is enabled, and one
	// object that cannot be decoded would make all of them unavailable.
	Reserved sets.Set[schema.GroupResource]
	// Bindings is the index of what logical clusters bind.
	Bindings *bindings.Index
	// FindExported returns a resource as an export of this shard with an identity has it now, or nil.
	FindExported func(ctx context.Context, gr schema.GroupResource, identity string) (*bindings.Resource, error)
}

// Registry has the definitions of all logical clusters, and resolves a resource in a logical cluster to the compiled CRD
// that serves it. An informer keeps it current (Run); requests add definitions that the informer has not received yet. It
// owns the compiled CRDs and their storages, and implements storage.CustomResourceResolver. A definition takes a few words of memory,
// everything else is per compiled CRD or per storage.
type Registry struct {
	Config
	reader   *storage.Reader[*apiextensionsinternal.CustomResourceDefinition]
	informer *informer.Informer[metav1.Object]

	// updateMu serializes updates, which may have to open a storage. mu guards the fields below and is held only for
	// reading or writing them. Lock order: updateMu, mu.
	updateMu sync.Mutex
	closed   bool

	mu sync.RWMutex
	// definitions are those of the logical clusters themselves, by logical cluster and name.
	definitions map[logicalcluster.Name]map[string]*definition
	crds        *refTable[crdKey, *CompiledCRD]
	storages    *refTable[storageKey, openStorage]
	// boundDefinitions are the definitions of system:bound-crds, boundCRDs the compiled CRDs of resources that are bound
	// with one.
	boundDefinitions map[types.UID]*boundDefinition
	boundCRDs        map[types.UID]map[bindings.Resource]*ref[*CompiledCRD]
	// wildcard counts the requests over all logical clusters, by resource: it need not be bound.
	wildcard *refTable[bindings.Resource, struct{}]
	// inFlight tracks the requests in flight to bound resources.
	inFlight *refTable[inFlightKey, *inFlight]
	// observedVersion is the resource version up to which the informer has received every change.
	observedVersion uint64
}

// New returns a registry. Until Run it only has what requests read.
func New(cfg Config) *Registry {
	r := &Registry{
		Config:           cfg,
		reader:           storage.NewReader[*apiextensionsinternal.CustomResourceDefinition](cfg.Resources, apiextensions.Definitions),
		definitions:      map[logicalcluster.Name]map[string]*definition{},
		boundDefinitions: map[types.UID]*boundDefinition{},
		boundCRDs:        map[types.UID]map[bindings.Resource]*ref[*CompiledCRD]{},
	}
	r.crds = newRefTable[crdKey, *CompiledCRD](&r.mu)
	r.storages = newRefTable[storageKey, openStorage](&r.mu)
	r.storages.onRemove = func(store openStorage) { cfg.Resources.RemoveCustom(store.Prefix()) }
	r.wildcard = newRefTable[bindings.Resource, struct{}](&r.mu)
	r.inFlight = newRefTable[inFlightKey, *inFlight](&r.mu)
	r.informer = informer.NewWithHandler(apiextensions.Definitions, r.watchAll, informer.EventHandler[metav1.Object]{
		OnReplace: r.onReplace, OnAdd: r.onUpdate, OnUpdate: r.onUpdate, OnDelete: r.onDelete, OnBookmark: r.onBookmark,
	})
	cfg.Bindings.Subscribe(r.syncBinding)
	return r
}

// ServesBuiltIn returns whether the context's logical cluster serves a built-in resource, whatever definition of that
// name it has.
func (r *Registry) ServesBuiltIn(ctx context.Context, gr schema.GroupResource) bool {
	return r.BuiltIn.Has(gr) && r.Resources.IsVisible(ctx, gr)
}

// OverlapsBuiltIn returns whether the objects of definitions of a resource would be stored among the objects of a
// built-in resource, and could be taken for them. Such definitions may exist; they are never served and have no objects.
func (r *Registry) OverlapsBuiltIn(gr schema.GroupResource) bool {
	return r.overlapsBuiltIn(storageKey{gr, Segment})
}

func (r *Registry) overlapsBuiltIn(key storageKey) bool {
	if key.segment == Segment && r.Reserved.Has(key.resource) {
		return true
	}
	builtIn, err := r.Resources.Get(key.resource)
	if err != nil {
		return false // no built-in resource
	}
	return strings.HasPrefix(crdstorage.Prefix(key.resource, key.segment)+"/", strings.TrimSuffix(builtIn.Prefix, "/")+"/")
}

// HasInstances returns whether the context's logical cluster has objects of a resource in storage, whether or not its
// definition is served.
func (r *Registry) HasInstances(ctx context.Context, gr schema.GroupResource) (bool, error) {
	r.mu.RLock()
	found := r.storages.entries[storageKey{gr, Segment}]
	r.mu.RUnlock()
	if found == nil {
		return false, fmt.Errorf("the storage of %s is not open yet", gr)
	}
	list, err := found.value.Store().List(ctx, &internalversion.ListOptions{Limit: 1})
	if err != nil {
		return false, fmt.Errorf("listing objects of %s: %w", gr, err)
	}
	return meta.LenList(list) > 0, nil
}

// ServedResource is a resource that a logical cluster serves by a definition or a binding.
type ServedResource struct {
	CRD *CompiledCRD
	// Terminating forbids the creation of objects.
	Terminating bool
}

// ListServed returns what the context's logical cluster serves by its definitions and bindings, ordered by group and name.
// Discovery and OpenAPI of two logical clusters are equal if the hashes of the compiled CRDs and the flags are.
func (r *Registry) ListServed(ctx context.Context) []ServedResource {
	cluster, _ := logicalcluster.From(ctx)
	bound := r.Bindings.List(ctx)
	r.mu.RLock()
	defer r.mu.RUnlock()
	served := make([]ServedResource, 0, len(bound)+len(r.definitions[cluster]))
	boundResources := sets.New[schema.GroupResource]()
	for _, b := range bound {
		boundResources.Insert(b.GroupResource)
		if crd := r.boundCRDs[b.SchemaUID][*b.Resource]; crd != nil && !r.ServesBuiltIn(ctx, b.GroupResource) {
			served = append(served, ServedResource{crd.value, b.Terminating})
		}
	}
	for _, d := range r.definitions[cluster] {
		if d.crd != nil && !boundResources.Has(d.resource) && !r.ServesBuiltIn(ctx, d.resource) {
			served = append(served, ServedResource{d.crd.value, d.terminating})
		}
	}
	slices.SortFunc(served, func(a, b ServedResource) int {
		x, y := a.CRD.GroupResource(), b.CRD.GroupResource()
		return cmp.Or(cmp.Compare(x.Group, y.Group), cmp.Compare(x.Resource, y.Resource))
	})
	return served
}

// List implements storage.CustomResourceResolver.
func (r *Registry) List(ctx context.Context) ([]*storage.Resource, error) {
	served := r.ListServed(ctx)
	resources := make([]*storage.Resource, 0, len(served))
	for _, s := range served {
		resources = append(resources, s.CRD.Resource)
	}
	return resources, nil
}

// Get implements storage.CustomResourceResolver.
func (r *Registry) Get(ctx context.Context, gr schema.GroupResource) (*storage.Resource, error) {
	cluster, _ := logicalcluster.From(ctx)
	b, bound := r.Bindings.Get(ctx, gr)
	r.mu.RLock()
	defer r.mu.RUnlock()
	var crd *ref[*CompiledCRD]
	if bound {
		crd = r.boundCRDs[b.SchemaUID][*b.Resource]
	} else if d := r.definitions[cluster][gr.String()]; d != nil {
		crd = d.crd
	}
	if crd == nil || r.ServesBuiltIn(ctx, gr) {
		return nil, nil
	}
	return crd.value.Resource, nil
}

// Sizes returns the numbers of definitions, compiled CRDs and open storages, which bound the memory of the registry.
func (r *Registry) Sizes() (definitions, crds, storages int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, inCluster := range r.definitions {
		definitions += len(inCluster)
	}
	return definitions + len(r.boundDefinitions), len(r.crds.entries), len(r.storages.entries)
}

// Close closes all compiled CRDs and storages, at the end of the process.
func (r *Registry) Close() {
	r.updateMu.Lock()
	defer r.updateMu.Unlock()
	r.closed = true
	r.mu.Lock()
	crds, storages := r.crds.entries, r.storages.entries
	r.crds.entries, r.storages.entries = map[crdKey]*ref[*CompiledCRD]{}, map[storageKey]*ref[openStorage]{}
	r.definitions = map[logicalcluster.Name]map[string]*definition{}
	r.boundDefinitions, r.boundCRDs = map[types.UID]*boundDefinition{}, map[types.UID]map[bindings.Resource]*ref[*CompiledCRD]{}
	r.mu.Unlock()
	for _, crd := range crds {
		crd.value.Close()
	}
	for _, store := range storages {
		r.Resources.RemoveCustom(store.value.Prefix())
		store.value.release()
	}
}
