package bindings

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// ExportKey identifies an APIExport.
type ExportKey struct {
	Cluster logicalcluster.Name
	Name    string
}

// Resource is one bound resource of an export. Logical clusters that bind the same resource share one value, which is
// read-only.
type Resource struct {
	schema.GroupResource
	Export ExportKey
	// Identity is the identity hash in the etcd keys of its objects.
	Identity string
	// Schema is the name of the APIResourceSchema in the logical cluster of the export, SchemaUID its UID, which is the
	// name of the definition in system:bound-crds.
	Schema    string
	SchemaUID types.UID
	// Virtual means that a virtual workspace serves its objects; they are not stored.
	Virtual bool
}

// BoundResource is a resource as it is bound in one logical cluster.
type BoundResource struct {
	*Resource
	// Binding is the name of the APIBinding.
	Binding string
	// Terminating means that the binding is being deleted, so that no object may be created. It is false while the binding
	// waits for a successor.
	Terminating bool
}

// Index is the index of bound resources by logical cluster. It is safe for concurrent use.
type Index struct {
	reader   *storage.Reader[*apisv1alpha2.APIBinding]
	informer *informer.Informer[*apisv1alpha2.APIBinding]

	mu sync.RWMutex
	// clusters holds the bindings of each logical cluster that has any, ordered by name.
	clusters map[logicalcluster.Name][]entry
	pool     resourcePool
	// states is the number of bindings by state.
	states map[State]int
	// syncedVersion is the resource version up to which all changes are applied.
	syncedVersion uint64
	// virtualVersion is the resource version of the last change of bound resources with virtual storage, or of claims that may be
	// of such; virtualChanged is closed with the next.
	virtualVersion uint64
	virtualChanged chan struct{}
	subscribers    []func(Change)
}

// entry is the index entry of one APIBinding.
type entry struct {
	name string
	// version is the resource version of the indexed object.
	version     uint64
	terminating bool
	state       State
	claims      claimsHash
	// set holds the bound resources, shared with bindings that bind the same.
	set *resourceSet
}

// Change describes an added, changed or deleted binding.
type Change struct {
	Cluster logicalcluster.Name
	// Resources are the bound resources before and after the change.
	Resources []*Resource
}

// NewIndex returns an index. It is empty until Run is called, except for logical clusters that Refresh has read.
func NewIndex(registry *storage.Registry) *Index {
	i := &Index{
		reader:   storage.NewReader[*apisv1alpha2.APIBinding](registry, apisv1alpha2.Resource("apibindings")),
		clusters: map[logicalcluster.Name][]entry{},
		pool:     newResourcePool(),
		states:   map[State]int{},

		virtualChanged: make(chan struct{}),
	}
	i.informer = informer.NewWithHandler(i.reader.Resource(), i.reader.WatchAll, informer.EventHandler[*apisv1alpha2.APIBinding]{
		OnReplace: i.onReplace, OnAdd: i.onUpdate, OnUpdate: i.onUpdate, OnDelete: i.onDelete, OnBookmark: i.setSyncedVersion,
	})
	return i
}

// Subscribe registers a function that is called after every change. Calls may be concurrent and late, so that the
// function has to read the current state from the index. It must not block.
func (i *Index) Subscribe(changed func(Change)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.subscribers = append(i.subscribers, changed)
}

// Get returns the resource that the context's logical cluster has bound under a name, as of the watch.
func (i *Index) Get(ctx context.Context, gr schema.GroupResource) (BoundResource, bool) {
	cluster, _ := logicalcluster.From(ctx)
	i.mu.RLock()
	defer i.mu.RUnlock()
	for _, b := range i.clusters[cluster] {
		if resource := b.set.get(gr); resource != nil {
			return BoundResource{Resource: resource, Binding: b.name, Terminating: b.terminating}, true
		}
	}
	return BoundResource{}, false
}

// GetLatest is Get after Refresh. It is for requests that would otherwise be answered with 404.
func (i *Index) GetLatest(ctx context.Context, gr schema.GroupResource) (BoundResource, bool, error) {
	if err := i.Refresh(ctx); err != nil {
		return BoundResource{}, false, err
	}
	bound, ok := i.Get(ctx, gr)
	return bound, ok, nil
}

// Refresh updates the bindings of the context's logical cluster from a consistent list. Those that were deleted leave the index by the
// watch.
func (i *Index) Refresh(ctx context.Context) error {
	_, err := i.refresh(ctx)
	return err
}

// refresh is Refresh, and returns the names of the bindings that exist.
func (i *Index) refresh(ctx context.Context) (existing sets.Set[string], err error) {
	all, err := i.reader.ListLatest(ctx, "", nil)
	if err != nil {
		return nil, fmt.Errorf("listing the bindings of the logical cluster: %w", err)
	}
	existing = sets.New[string]()
	for _, object := range all {
		o, err := parseBinding(object)
		if err != nil {
			return nil, err
		}
		i.update(o, true)
		existing.Insert(object.Name)
	}
	return existing, nil
}

// List returns the bound resources of the context's logical cluster, ordered by group and resource.
func (i *Index) List(ctx context.Context) []BoundResource {
	return i.list(ctx, func(string) bool { return true })
}

// ListLatest is List after Refresh, without the bindings that were deleted. It is for controllers that an event of a binding
// brings here before the watch of the index has it.
func (i *Index) ListLatest(ctx context.Context) ([]BoundResource, error) {
	existing, err := i.refresh(ctx)
	if err != nil {
		return nil, err
	}
	return i.list(ctx, func(name string) bool { return existing.Has(name) }), nil
}

func (i *Index) list(ctx context.Context, included func(name string) bool) []BoundResource {
	cluster, _ := logicalcluster.From(ctx)
	i.mu.RLock()
	defer i.mu.RUnlock()
	var all []BoundResource
	for _, b := range i.clusters[cluster] {
		if !included(b.name) {
			continue
		}
		for _, resource := range b.set.resources {
			all = append(all, BoundResource{Resource: resource, Binding: b.name, Terminating: b.terminating})
		}
	}
	slices.SortStableFunc(all, func(a, b BoundResource) int { return compareResources(a.GroupResource, b.GroupResource) })
	// Reservations prevent two bindings of one resource. Should there be two, the first by name counts, as in Get.
	return slices.CompactFunc(all, func(a, b BoundResource) bool { return a.GroupResource == b.GroupResource })
}

// GetByIdentity returns the resource with an identity that any logical cluster of the shard binds, or nil. If clusters
// bind it with several schemas, it returns the one with the greatest schema name.
func (i *Index) GetByIdentity(gr schema.GroupResource, hash string) *Resource {
	i.mu.RLock()
	defer i.mu.RUnlock()
	var found *Resource
	for _, resource := range i.pool.identities[resourceIdentity{gr, hash}] {
		if found == nil || found.Schema < resource.Schema {
			found = resource
		}
	}
	return found
}

// ListBySchema returns the resources of the shard that are bound with a schema, in no order.
func (i *Index) ListBySchema(uid types.UID) []*Resource {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return slices.Clone(i.pool.schemas[uid])
}

// Sizes returns the number of logical clusters with bindings, bindings, resource sets and resources, which bound the
// memory of the index.
func (i *Index) Sizes() (clusters, bindings, sets, resources int) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	for _, entries := range i.clusters {
		bindings += len(entries)
	}
	return len(i.clusters), bindings, len(i.pool.sets), len(i.pool.resources)
}

// update adds or replaces the entry of a binding unless the entry is newer. A binding from a request that is older than
// the watch and has no entry was deleted meanwhile.
func (i *Index) update(o parsedBinding, fromRequest bool) {
	i.mu.Lock()
	entries := i.clusters[o.cluster]
	at, known := find(entries, o.name)
	if (known && entries[at].version >= o.version) || (!known && fromRequest && o.version <= i.syncedVersion) {
		i.mu.Unlock()
		return
	}
	current := entry{name: o.name, version: o.version, terminating: o.terminating, state: o.state, claims: o.claims, set: i.pool.acquire(o.resources)}
	var previous entry
	if known {
		previous, entries[at] = entries[at], current
	} else {
		i.clusters[o.cluster] = slices.Insert(entries, at, current)
	}
	i.setVirtualVersion(o.version, previous, current)
	i.unlockAndNotify(o.cluster, previous, current)
}

// remove deletes the entry of a binding unless it is newer than version.
func (i *Index) remove(k bindingKey, version uint64) {
	i.mu.Lock()
	entries := i.clusters[k.cluster]
	at, known := find(entries, k.name)
	if !known || entries[at].version > version {
		i.mu.Unlock()
		return
	}
	previous := entries[at]
	if entries = slices.Delete(entries, at, at+1); len(entries) == 0 {
		delete(i.clusters, k.cluster)
	} else {
		i.clusters[k.cluster] = slices.Clip(entries)
	}
	i.setVirtualVersion(version, previous, entry{})
	i.unlockAndNotify(k.cluster, previous, entry{})
}

// VirtualVersion returns the resource version of the last change of bound resources with virtual storage, or of claims of
// resources of other exports, in any logical cluster, at least that of the first list, and a channel that is closed with the next change.
func (i *Index) VirtualVersion() (version uint64, changed <-chan struct{}) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.virtualVersion, i.virtualChanged
}

// setVirtualVersion records a change of a binding. Callers must hold i.mu.
func (i *Index) setVirtualVersion(version uint64, previous, current entry) {
	isVirtual := func(resource *Resource) bool { return resource.Virtual }
	bound := previous.set != current.set && (slices.ContainsFunc(previous.set.all(), isVirtual) || slices.ContainsFunc(current.set.all(), isVirtual))
	if !bound && previous.claims == current.claims {
		return
	}
	i.virtualVersion = max(i.virtualVersion, version)
	close(i.virtualChanged)
	i.virtualChanged = make(chan struct{})
}

// unlockAndNotify releases the resources of the previous entry, unlocks i.mu, which the caller must hold, and calls the
// subscribers if the bound resources changed.
func (i *Index) unlockAndNotify(cluster logicalcluster.Name, previous, current entry) {
	i.countState(previous, current)
	same := previous.set == current.set && previous.terminating == current.terminating
	var resources []*Resource
	if !same {
		resources = append(resources, previous.set.all()...)
		if current.set != previous.set {
			resources = append(resources, current.set.all()...)
		}
	}
	i.pool.release(previous.set)
	subscribers := i.subscribers
	i.mu.Unlock()
	if len(resources) == 0 {
		return
	}
	for _, changed := range subscribers {
		changed(Change{Cluster: cluster, Resources: resources})
	}
}

func find(entries []entry, name string) (at int, found bool) {
	return slices.BinarySearchFunc(entries, name, func(b entry, name string) int { return strings.Compare(b.name, name) })
}
