package garbage

import (
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/lru"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// goneOwners is how many deleted owners are remembered, over all logical clusters. One that is forgotten costs its
// dependents a read of storage.
const goneOwners = 4096

// key is an object: a UID means something within one logical cluster only.
type key struct {
	cluster logicalcluster.Name
	uid     types.UID
}

// waiting says what an object that is being deleted waits for.
type waiting int

const (
	forNothing waiting = iota
	forDependents
	forOrphaning
)

// node is an object that has owners, or that waits for its dependents. Other objects have none.
type node struct {
	key
	// resource is the storage of the object. What its cluster calls the resource's version may differ.
	resource        *storage.Resource
	namespace, name string
	owners          []metav1.OwnerReference
	deleting        bool
	waits           waiting
	// since is when it began to wait.
	since time.Time
	// listing is the round of the storage's listing in which the object was last seen.
	listing uint64
}

// graph knows which objects own which, in all logical clusters. Its memory follows the objects that have owners: an
// owner is an entry only for as long as it has dependents, or waits for them.
type graph struct {
	// enqueue is told whom to look at. It is called with the lock held.
	enqueue func(key)

	mu    sync.Mutex
	nodes map[key]*node
	// dependents are the nodes that name an owner, whether the owner exists or not.
	dependents map[key]map[*node]struct{}
	// listings counts the listings of each storage.
	listings map[*storage.Resource]uint64
	// gone remembers owners whose deletion was seen. A UID never comes back.
	gone *lru.Cache
}

func newGraph(enqueue func(key)) *graph {
	return &graph{
		enqueue:    enqueue,
		nodes:      map[key]*node{},
		dependents: map[key]map[*node]struct{}{},
		listings:   map[*storage.Resource]uint64{},
		gone:       lru.New(goneOwners),
	}
}

// Listing implements follow.Listener.
func (g *graph) Listing(resource *storage.Resource) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listings[resource]++
}

// Observe implements follow.Listener.
func (g *graph) Observe(resource *storage.Resource, event watch.EventType, object metav1.Object) {
	k := key{logicalcluster.Of(object), object.GetUID()}
	g.mu.Lock()
	defer g.mu.Unlock()
	if event == watch.Deleted {
		g.delete(k)
		return
	}
	owners, waits := object.GetOwnerReferences(), waitsFor(object)
	known := g.nodes[k]
	if len(owners) == 0 && waits == forNothing {
		if known != nil {
			g.drop(known)
		}
		return
	}
	if known == nil {
		known = &node{key: k, resource: resource, namespace: object.GetNamespace(), name: object.GetName()}
		g.nodes[k] = known
	}
	known.listing = g.listings[resource]
	known.deleting = object.GetDeletionTimestamp() != nil
	g.setOwners(known, owners)
	if waits != known.waits {
		known.waits, known.since = waits, time.Now()
		g.enqueue(k)
		for dependent := range g.dependents[k] {
			g.enqueue(dependent.key)
		}
	}
}

// Listed implements follow.Listener. Deletions between two watches were seen by nobody: objects that were not listed
// again are gone, and any owner of that storage may be.
func (g *graph) Listed(resource *storage.Resource) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.listings[resource] == 1 {
		return
	}
	for k, n := range g.nodes {
		if n.resource == resource && n.listing != g.listings[resource] {
			g.delete(k)
		}
	}
	for _, n := range g.nodes {
		g.enqueue(n.key)
	}
}

// Dropped implements follow.Listener.
func (g *graph) Dropped(resource *storage.Resource) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.listings, resource)
	for _, n := range g.nodes {
		if n.resource == resource {
			g.drop(n)
		}
	}
}

// delete forgets an object that is gone and has its dependents looked at.
func (g *graph) delete(k key) {
	if n := g.nodes[k]; n != nil {
		g.drop(n)
	}
	dependents := g.dependents[k]
	if len(dependents) == 0 {
		return
	}
	g.gone.Add(k, nil)
	for dependent := range dependents {
		g.enqueue(dependent.key)
	}
}

// drop forgets a node.
func (g *graph) drop(n *node) {
	g.setOwners(n, nil)
	delete(g.nodes, n.key)
}

// setOwners replaces the owners of a node. A node with a new owner is looked at, since that owner may not exist, and so
// is an owner that this node no longer blocks.
func (g *graph) setOwners(n *node, owners []metav1.OwnerReference) {
	old := n.owners
	n.owners = owners
	changed := false
	for _, owner := range owners {
		at := key{n.cluster, owner.UID}
		if !slices.ContainsFunc(old, func(known metav1.OwnerReference) bool { return sameReference(known, owner) }) {
			changed = true
		}
		if g.dependents[at] == nil {
			g.dependents[at] = map[*node]struct{}{}
		}
		g.dependents[at][n] = struct{}{}
	}
	for _, owner := range old {
		at := key{n.cluster, owner.UID}
		if waiter := g.nodes[at]; waiter != nil && waiter.waits == forDependents && blocks(old, owner.UID) && !blocks(owners, owner.UID) {
			g.enqueue(at)
		}
		if names(owners, owner.UID) {
			continue
		}
		delete(g.dependents[at], n)
		if len(g.dependents[at]) == 0 {
			delete(g.dependents, at)
		}
	}
	if changed {
		g.enqueue(n.key)
	}
}

// view is a node as it was at one moment.
type view struct {
	node
	// dependents tells whether there are any; circular whether one of them is itself waiting for its dependents.
	dependents, circular bool
}

func (g *graph) view(k key) (view, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[k]
	if n == nil {
		return view{}, false
	}
	v := view{node: *n, dependents: len(g.dependents[k]) > 0}
	for dependent := range g.dependents[k] {
		if dependent.waits == forDependents {
			v.circular = true
			break
		}
	}
	return v, true
}

// blocking returns the dependents that hold up the deletion of an owner that waits for them.
func (g *graph) blocking(owner key) []node {
	return g.dependentsOf(owner, func(n *node) bool { return blocks(n.owners, owner.uid) })
}

// all returns all dependents of an owner.
func (g *graph) all(owner key) []node {
	return g.dependentsOf(owner, func(*node) bool { return true })
}

func (g *graph) dependentsOf(owner key, matches func(*node) bool) []node {
	g.mu.Lock()
	defer g.mu.Unlock()
	var found []node
	for dependent := range g.dependents[owner] {
		if matches(dependent) {
			found = append(found, *dependent)
		}
	}
	return found
}

// isGone tells whether an object's deletion was seen. False does not say that it exists.
func (g *graph) isGone(k key) bool {
	_, gone := g.gone.Get(k)
	return gone
}

// size returns the number of nodes, and of owners that nodes name.
func (g *graph) size() (nodes, owners int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.nodes), len(g.dependents)
}

func waitsFor(object metav1.Object) waiting {
	if object.GetDeletionTimestamp() == nil {
		return forNothing
	}
	switch finalizers := object.GetFinalizers(); {
	case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		return forOrphaning
	case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		return forDependents
	}
	return forNothing
}

// sameReference tells whether two references lead to the same owner. What they say of blocking and control may differ.
func sameReference(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && a.Name == b.Name && a.Kind == b.Kind && a.APIVersion == b.APIVersion
}

func names(owners []metav1.OwnerReference, uid types.UID) bool {
	return slices.ContainsFunc(owners, func(owner metav1.OwnerReference) bool { return owner.UID == uid })
}

func blocks(owners []metav1.OwnerReference, uid types.UID) bool {
	return slices.ContainsFunc(owners, func(owner metav1.OwnerReference) bool {
		return owner.UID == uid && owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion
	})
}
