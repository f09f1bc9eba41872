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

// Export names an APIExport by the logical cluster that it is in.
type Export struct {
	Cluster logicalcluster.Name
	Name    string
}

// Resource is one resource of an export as bindings bind it. One value is shared by all logical clusters that bind the
// same, read-only. Two of them are the same if their contents are.
type Resource struct {
	schema.GroupResource
	Export Export
	// Identity is the identity hash that stands in the keys of its objects.
	Identity string
	// Schema is the name of the APIResourceSchema in the logical cluster of the export, SchemaUID its UID, which is the
	// name of the definition in system:bound-crds.
	Schema    string
	SchemaUID types.UID
	// Virtual says that its objects are not stored: a virtual workspace serves them.
	Virtual bool
}

// Bound is a resource as it is bound in one logical cluster.
type Bound struct {
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
	clusters map[logicalcluster.Name][]binding
	shared   shared
	// states counts the bindings by state.
	states map[State]int
	// seen is the resource version up to which the watch has brought every change.
	seen        uint64
	subscribers []func(Change)
}

// binding is what is kept of one APIBinding.
type binding struct {
	name string
	// version is the resource version of the object that this was read from.
	version     uint64
	terminating bool
	state       State
	// set is what it has bound, shared with equal bindings elsewhere.
	set *set
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
		clusters: map[logicalcluster.Name][]binding{},
		shared:   newShared(),
		states:   map[State]int{},
	}
	i.informer = informer.NewWithHandler(i.reader.Resource(), i.reader.WatchAll, informer.EventHandler[*apisv1alpha2.APIBinding]{
		OnReplace: i.onReplace, OnAdd: i.onUpdate, OnUpdate: i.onUpdate, OnDelete: i.onDelete, OnBookmark: i.saw,
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
func (i *Index) Get(ctx context.Context, gr schema.GroupResource) (Bound, bool) {
	cluster, _ := logicalcluster.From(ctx)
	i.mu.RLock()
	defer i.mu.RUnlock()
	for _, b := range i.clusters[cluster] {
		if resource := b.set.get(gr); resource != nil {
			return Bound{Resource: resource, Binding: b.name, Terminating: b.terminating}, true
		}
	}
	return Bound{}, false
}

// Latest is Get with the consistency of a client's request: it sees every binding whose status was acknowledged before.
// It is for what would else be answered with 404.
func (i *Index) Latest(ctx context.Context, gr schema.GroupResource) (Bound, bool, error) {
	if err := i.Refresh(ctx); err != nil {
		return Bound{}, false, err
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
		o, err := observe(object)
		if err != nil {
			return err
		}
		i.update(o, true)
	}
	return nil
}

// In returns all that the context's logical cluster has bound, ordered by group and resource.
func (i *Index) In(ctx context.Context) []Bound {
	cluster, _ := logicalcluster.From(ctx)
	i.mu.RLock()
	defer i.mu.RUnlock()
	var all []Bound
	for _, b := range i.clusters[cluster] {
		for _, resource := range b.set.resources {
			all = append(all, Bound{Resource: resource, Binding: b.name, Terminating: b.terminating})
		}
	}
	slices.SortStableFunc(all, func(a, b Bound) int { return compare(a.GroupResource, b.GroupResource) })
	// Locks keep two bindings from one resource; where they did not, it is the first by name, as for Get.
	return slices.CompactFunc(all, func(a, b Bound) bool { return a.GroupResource == b.GroupResource })
}

// Of returns what one binding of the context's logical cluster has bound.
func (i *Index) Of(ctx context.Context, name string) []*Resource {
	cluster, _ := logicalcluster.From(ctx)
	i.mu.RLock()
	defer i.mu.RUnlock()
	if at, found := find(i.clusters[cluster], name); found {
		return i.clusters[cluster][at].set.resources
	}
	return nil
}

// Identity returns a resource with an identity as some logical cluster of the shard binds it, or nil. Where clusters
// bind it with several schemas, it is that of the schema with the greatest name.
func (i *Index) Identity(gr schema.GroupResource, hash string) *Resource {
	i.mu.RLock()
	defer i.mu.RUnlock()
	var found *Resource
	for _, resource := range i.shared.identities[identity{gr, hash}] {
		if found == nil || found.Schema < resource.Schema {
			found = resource
		}
	}
	return found
}

// WithSchema returns all resources of the shard that are bound with a schema, in no order.
func (i *Index) WithSchema(uid types.UID) []*Resource {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return slices.Clone(i.shared.schemas[uid])
}

// Sizes returns how many logical clusters with bindings, bindings, sets and resources are known: what the memory of the
// index follows.
func (i *Index) Sizes() (clusters, bindings, sets, resources int) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	for _, of := range i.clusters {
		bindings += len(of)
	}
	return len(i.clusters), bindings, len(i.shared.sets), len(i.shared.resources)
}

// update takes in what a binding says. A request may have read something that the watch has seen the end of: what is
// older than the watch and not known is gone.
func (i *Index) update(o observed, byRequest bool) {
	i.mu.Lock()
	of := i.clusters[o.cluster]
	at, known := find(of, o.name)
	if (known && of[at].version >= o.version) || (!known && byRequest && o.version <= i.seen) {
		i.mu.Unlock()
		return
	}
	now := binding{name: o.name, version: o.version, terminating: o.terminating, state: o.state, set: i.shared.acquire(o.resources)}
	var before binding
	if known {
		before, of[at] = of[at], now
	} else {
		i.clusters[o.cluster] = slices.Insert(of, at, now)
	}
	i.changed(o.cluster, before, now)
}

// remove forgets a binding whose object went, unless there is a younger one.
func (i *Index) remove(k key, version uint64) {
	i.mu.Lock()
	of := i.clusters[k.cluster]
	at, known := find(of, k.name)
	if !known || of[at].version > version {
		i.mu.Unlock()
		return
	}
	before := of[at]
	if of = slices.Delete(of, at, at+1); len(of) == 0 {
		delete(i.clusters, k.cluster)
	} else {
		i.clusters[k.cluster] = slices.Clip(of)
	}
	i.changed(k.cluster, before, binding{})
}

// changed gives back what a binding bound before, and tells the subscribers if that is something else than now. It
// releases the lock, which is held.
func (i *Index) changed(cluster logicalcluster.Name, before, now binding) {
	i.count(before, now)
	same := before.set == now.set && before.terminating == now.terminating
	var touched []*Resource
	if !same {
		touched = append(touched, before.set.all()...)
		if now.set != before.set {
			touched = append(touched, now.set.all()...)
		}
	}
	i.shared.release(before.set)
	subscribers := i.subscribers
	i.mu.Unlock()
	if len(touched) == 0 {
		return
	}
	for _, changed := range subscribers {
		changed(Change{Cluster: cluster, Resources: touched})
	}
}

func find(of []binding, name string) (at int, found bool) {
	return slices.BinarySearchFunc(of, name, func(b binding, name string) int { return strings.Compare(b.name, name) })
}
