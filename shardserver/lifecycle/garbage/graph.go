package garbage

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// maxDeletedOwners is how many deleted owners are kept, over all logical clusters. A dependent of an evicted one costs
// a read of the watch cache.
const maxDeletedOwners = 4096

// key identifies an object: UIDs are unique only within one logical cluster.
type key struct {
	cluster logicalcluster.Name
	uid     types.UID
}

// waitReason is the reason why an object that is being deleted waits.
type waitReason int

const (
	waitNone waitReason = iota
	waitDependents
	waitOrphaning
)

// node is an object that has owners, or that waits for its dependents. Other objects have no node.
type node struct {
	key
	// resource is the storage of the object. The API version that its logical cluster serves may differ.
	resource        *storage.Resource
	namespace, name string
	owners          []metav1.OwnerReference
	deleting        bool
	waitReason      waitReason
	// waitingSince is when the wait started.
	waitingSince time.Time
}

// graph has the owners and dependents of all logical clusters. Its size depends on the objects that have owners: an
// owner has an entry only while it has dependents, or waits for them.
type graph struct {
	// enqueue enqueues an object for processing. It is called with the lock held.
	enqueue func(key)

	mu    sync.Mutex
	nodes map[key]*node
	// dependents are the nodes with a reference to an owner, whether the owner exists or not.
	dependents map[key]map[*node]struct{}
	// deletedOwners are owners whose deletion was observed, for which a read of the watch cache is spared. That an owner is absent is read from
	// storage: a logical cluster that is restored from a backup, or moves back to this shard, has the UIDs that were deleted here.
	deletedOwners *lru.Cache
}

func newGraph(enqueue func(key)) *graph {
	return &graph{
		enqueue:       enqueue,
		nodes:         map[key]*node{},
		dependents:    map[key]map[*node]struct{}{},
		deletedOwners: lru.New(maxDeletedOwners),
	}
}

// EventHandler returns the handler of one storage.
func (g *graph) EventHandler(resource *storage.Resource) informer.EventHandler[metav1.Object] {
	listed := false
	update := func(_ context.Context, object metav1.Object) error { g.update(resource, object); return nil }
	return informer.EventHandler[metav1.Object]{
		OnReplace: func(_ context.Context, objects []metav1.Object, _ string) error {
			for _, object := range objects {
				g.update(resource, object)
			}
			if listed {
				g.handleMissedDeletions(resource, objects)
			}
			listed = true
			return nil
		},
		OnAdd:    update,
		OnUpdate: update,
		OnDelete: func(_ context.Context, object metav1.Object) error { g.delete(object); return nil },
		OnStop:   func() { g.removeResource(resource) },
	}
}

func keyOf(object metav1.Object) key { return key{logicalcluster.Of(object), object.GetUID()} }

func (g *graph) delete(object metav1.Object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.handleDeletion(keyOf(object))
}

func (g *graph) update(resource *storage.Resource, object metav1.Object) {
	k := keyOf(object)
	g.mu.Lock()
	defer g.mu.Unlock()
	owners, reason := object.GetOwnerReferences(), waitReasonOf(object)
	known := g.nodes[k]
	if len(owners) == 0 && reason == waitNone {
		if known != nil {
			g.removeNode(known)
		}
		return
	}
	if known == nil {
		known = &node{key: k, resource: resource, namespace: object.GetNamespace(), name: object.GetName()}
		g.nodes[k] = known
	}
	known.deleting = object.GetDeletionTimestamp() != nil
	g.setOwners(known, owners)
	if reason != known.waitReason {
		known.waitReason, known.waitingSince = reason, time.Now()
		g.enqueue(k)
		for dependent := range g.dependents[k] {
			g.enqueue(dependent.key)
		}
	}
}

// handleMissedDeletions is called with all objects of a storage when events were missed: other objects of the storage
// are deleted, and any owner may be.
func (g *graph) handleMissedDeletions(resource *storage.Resource, objects []metav1.Object) {
	listed := make(map[key]struct{}, len(objects))
	for _, object := range objects {
		listed[keyOf(object)] = struct{}{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for k, n := range g.nodes {
		if _, exists := listed[k]; n.resource == resource && !exists {
			g.handleDeletion(k)
		}
	}
	for _, n := range g.nodes {
		g.enqueue(n.key)
	}
}

// removeResource removes the nodes of a removed storage.
func (g *graph) removeResource(resource *storage.Resource) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.nodes {
		if n.resource == resource {
			g.removeNode(n)
		}
	}
}

// handleDeletion removes a deleted object and enqueues its dependents.
func (g *graph) handleDeletion(k key) {
	if n := g.nodes[k]; n != nil {
		g.removeNode(n)
	}
	dependents := g.dependents[k]
	if len(dependents) == 0 {
		return
	}
	g.deletedOwners.Add(k, nil)
	for dependent := range dependents {
		g.enqueue(dependent.key)
	}
}

// removeNode removes a node.
func (g *graph) removeNode(n *node) {
	g.setOwners(n, nil)
	delete(g.nodes, n.key)
}

// setOwners replaces the owners of a node. It enqueues a node with a new owner, since that owner may not exist, and an
// owner that the node no longer blocks.
func (g *graph) setOwners(n *node, owners []metav1.OwnerReference) {
	old := n.owners
	n.owners = owners
	changed := false
	before, after := newOwnerSet(old), newOwnerSet(owners)
	for _, owner := range owners {
		ownerKey := key{n.cluster, owner.UID}
		if !before.has(owner) {
			changed = true
		}
		if g.dependents[ownerKey] == nil {
			g.dependents[ownerKey] = map[*node]struct{}{}
		}
		g.dependents[ownerKey][n] = struct{}{}
	}
	for _, owner := range old {
		ownerKey := key{n.cluster, owner.UID}
		if waiter := g.nodes[ownerKey]; waiter != nil && waiter.waitReason == waitDependents && before.blocking[owner.UID] && !after.blocking[owner.UID] {
			g.enqueue(ownerKey)
		}
		if _, stays := after.blocking[owner.UID]; stays {
			continue
		}
		delete(g.dependents[ownerKey], n)
		if len(g.dependents[ownerKey]) == 0 {
			delete(g.dependents, ownerKey)
		}
	}
	if changed {
		g.enqueue(n.key)
	}
}

// nodeSnapshot is a copy of a node.
type nodeSnapshot struct {
	node
	// dependents reports whether there are any; circular whether one of them is itself waiting for its dependents.
	dependents, circular bool
}

func (g *graph) snapshot(k key) (nodeSnapshot, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[k]
	if n == nil {
		return nodeSnapshot{}, false
	}
	v := nodeSnapshot{node: *n, dependents: len(g.dependents[k]) > 0}
	for dependent := range g.dependents[k] {
		if dependent.waitReason == waitDependents {
			v.circular = true
			break
		}
	}
	return v, true
}

// blockingDependents returns the dependents that block the deletion of an owner that waits for them.
func (g *graph) blockingDependents(owner key) []node {
	return g.listDependents(owner, func(n *node) bool { return blocksOwner(n.owners, owner.uid) })
}

// allDependents returns all dependents of an owner.
func (g *graph) allDependents(owner key) []node {
	return g.listDependents(owner, func(*node) bool { return true })
}

func (g *graph) listDependents(owner key, matches func(*node) bool) []node {
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

// isDeleted reports whether the deletion of an object was observed. It may exist again; false does not mean that it exists.
func (g *graph) isDeleted(k key) bool {
	_, deleted := g.deletedOwners.Get(k)
	return deleted
}

// size returns the number of nodes, and of owners with dependents.
func (g *graph) size() (nodes, owners int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.nodes), len(g.dependents)
}

func waitReasonOf(object metav1.Object) waitReason {
	if object.GetDeletionTimestamp() == nil {
		return waitNone
	}
	switch finalizers := object.GetFinalizers(); {
	case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		return waitOrphaning
	case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		return waitDependents
	}
	return waitNone
}

// ownerSet are the owners of one object. An object may have very many, and all objects share the lock of the graph.
type ownerSet struct {
	references map[metav1.OwnerReference]struct{}
	// blocking has every owner, and whether the object blocks its deletion.
	blocking map[types.UID]bool
}

func newOwnerSet(owners []metav1.OwnerReference) ownerSet {
	set := ownerSet{make(map[metav1.OwnerReference]struct{}, len(owners)), make(map[types.UID]bool, len(owners))}
	for _, owner := range owners {
		set.references[identity(owner)] = struct{}{}
		set.blocking[owner.UID] = set.blocking[owner.UID] || owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion
	}
	return set
}

// identity returns what identifies an owner in a reference: references may differ in blockOwnerDeletion and controller.
func identity(owner metav1.OwnerReference) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
}

func (s ownerSet) has(owner metav1.OwnerReference) bool {
	_, ok := s.references[identity(owner)]
	return ok
}

func blocksOwner(owners []metav1.OwnerReference, uid types.UID) bool {
	return slices.ContainsFunc(owners, func(owner metav1.OwnerReference) bool {
		return owner.UID == uid && owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion
	})
}
