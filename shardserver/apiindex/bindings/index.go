package bindings

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// ExportKey names an APIExport by the logical cluster that it is in.
type ExportKey struct {
	Cluster logicalcluster.Name
	Name    string
}

// Resource is one resource of an export as bindings bind it. One value is shared by all logical clusters that bind the
// same, read-only. Two of them are the same if their contents are.
type Resource struct {
	schema.GroupResource
	Export ExportKey
	// Identity is the identity hash that stands in the keys of its objects.
	Identity string
	// Schema is the name of the APIResourceSchema in the logical cluster of the export, SchemaUID its UID, which is the
	// name of the definition in system:bound-crds.
	Schema    string
	SchemaUID types.UID
	// Virtual says that its objects are not stored: a virtual workspace serves them.
	Virtual bool
}

// BoundResource is a resource as it is bound in one logical cluster.
type BoundResource struct {
	*Resource
	// Binding is the name of the APIBinding.
	Binding string
	// Terminating says that the binding is being deleted: nothing can be created any more.
	Terminating bool
}

// Index knows what the bindings of all logical clusters have bound. It is safe for concurrent use.
type Index struct {
	reader   *storage.Reader[*apisv1alpha2.APIBinding]
	informer *informer.Informer[*apisv1alpha2.APIBinding]

	mu sync.RWMutex
	// clusters holds the bindings of each logical cluster that has any, ordered by name.
	clusters map[logicalcluster.Name][]entry
	pool     resourcePool
	// states counts the bindings by state.
	states map[State]int
	// syncedVersion is the resource version up to which the watch has brought every change.
	syncedVersion uint64
	subscribers   []func(Change)
}

// entry is what is kept of one APIBinding.
type entry struct {
	name string
	// version is the resource version of the object that this was read from.
	version     uint64
	terminating bool
	state       State
	// set is what it has bound, shared with equal bindings elsewhere.
	set *resourceSet
}

// Change tells that a binding came, went, or binds something else.
type Change struct {
	Cluster logicalcluster.Name
	// Resources are those that it bound before, or binds now.
	Resources []*Resource
}

// NewIndex returns an index that knows nothing until Run has begun, but what Latest makes it look for.
func NewIndex(registry *storage.Registry) *Index {
	i := &Index{
		reader:   storage.NewReader[*apisv1alpha2.APIBinding](registry, apisv1alpha2.Resource("apibindings")),
		clusters: map[logicalcluster.Name][]entry{},
		pool:     newResourcePool(),
		states:   map[State]int{},
	}
	i.informer = informer.NewWithHandler(i.reader.Resource(), i.reader.WatchAll, informer.EventHandler[*apisv1alpha2.APIBinding]{
		OnReplace: i.onReplace, OnAdd: i.onUpdate, OnUpdate: i.onUpdate, OnDelete: i.onDelete, OnBookmark: i.setSyncedVersion,
	})
	return i
}

// Subscribe has the function called after every change. Calls may come at the same time, and late: what is true now is
// for the index to say. The function must not block for long, and may read the index.
func (i *Index) Subscribe(changed func(Change)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.subscribers = append(i.subscribers, changed)
}

// Get returns what the context's logical cluster has bound under a name, from memory. It may lag behind the status of
// the binding by the delay of a watch.
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

// GetLatest is Get with the consistency of a client's request: it sees every binding whose status was acknowledged before.
// It is for what would else be answered with 404.
func (i *Index) GetLatest(ctx context.Context, gr schema.GroupResource) (BoundResource, bool, error) {
	if err := i.Refresh(ctx); err != nil {
		return BoundResource{}, false, err
	}
	bound, ok := i.Get(ctx, gr)
	return bound, ok, nil
}

// Refresh returns when the index knows every binding of the context's logical cluster whose status was acknowledged
// before.
func (i *Index) Refresh(ctx context.Context) error {
	all, err := i.reader.ListLatest(ctx, "", nil)
	if err != nil {
		return fmt.Errorf("listing the bindings of the logical cluster: %w", err)
	}
	for _, object := range all {
		o, err := parseBinding(object)
		if err != nil {
			return err
		}
		i.update(o, true)
	}
	return nil
}

// List returns all that the context's logical cluster has bound, ordered by group and resource.
func (i *Index) List(ctx context.Context) []BoundResource {
	cluster, _ := logicalcluster.From(ctx)
	i.mu.RLock()
	defer i.mu.RUnlock()
	var all []BoundResource
	for _, b := range i.clusters[cluster] {
		for _, resource := range b.set.resources {
			all = append(all, BoundResource{Resource: resource, Binding: b.name, Terminating: b.terminating})
		}
	}
	slices.SortStableFunc(all, func(a, b BoundResource) int { return compareResources(a.GroupResource, b.GroupResource) })
	// Locks keep two bindings from one resource; where they did not, it is the first by name, as for Get.
	return slices.CompactFunc(all, func(a, b BoundResource) bool { return a.GroupResource == b.GroupResource })
}

// BoundBy returns what one binding of the context's logical cluster has bound.
func (i *Index) BoundBy(ctx context.Context, name string) []*Resource {
	cluster, _ := logicalcluster.From(ctx)
	i.mu.RLock()
	defer i.mu.RUnlock()
	if at, found := find(i.clusters[cluster], name); found {
		return i.clusters[cluster][at].set.resources
	}
	return nil
}

// GetByIdentity returns a resource with an identity as some logical cluster of the shard binds it, or nil. Where clusters
// bind it with several schemas, it is that of the schema with the greatest name.
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

// ListBySchema returns all resources of the shard that are bound with a schema, in no order.
func (i *Index) ListBySchema(uid types.UID) []*Resource {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return slices.Clone(i.pool.schemas[uid])
}

// Sizes returns how many logical clusters with bindings, bindings, sets and resources are known: what the memory of the
// index follows.
func (i *Index) Sizes() (clusters, bindings, sets, resources int) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	for _, of := range i.clusters {
		bindings += len(of)
	}
	return len(i.clusters), bindings, len(i.pool.sets), len(i.pool.resources)
}

// update takes in what a binding says. A request may have read something that the watch has seen the end of: what is
// older than the watch and not known is gone.
func (i *Index) update(o parsedBinding, fromRequest bool) {
	i.mu.Lock()
	entries := i.clusters[o.cluster]
	at, known := find(entries, o.name)
	if (known && entries[at].version >= o.version) || (!known && fromRequest && o.version <= i.syncedVersion) {
		i.mu.Unlock()
		return
	}
	current := entry{name: o.name, version: o.version, terminating: o.terminating, state: o.state, set: i.pool.acquire(o.resources)}
	var previous entry
	if known {
		previous, entries[at] = entries[at], current
	} else {
		i.clusters[o.cluster] = slices.Insert(entries, at, current)
	}
	i.unlockAndNotify(o.cluster, previous, current)
}

// remove forgets a binding whose object went, unless there is a younger one.
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
	i.unlockAndNotify(k.cluster, previous, entry{})
}

// unlockAndNotify gives back what a binding bound before, and tells the subscribers if that is something else than now. It
// releases the lock, which is held.
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

func find(of []entry, name string) (at int, found bool) {
	return slices.BinarySearchFunc(of, name, func(b entry, name string) int { return strings.Compare(b.name, name) })
}
