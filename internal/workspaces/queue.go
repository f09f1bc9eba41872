package workspaces

import (
	"sync"

	"k8s.io/client-go/util/workqueue"
)

// fairQueue is a work queue with groups of items, such as tenants. A worker that calls Done must call Get next, as controllers do, because it
// may get the item that Done makes available. When the queue is shut down, it drops items beyond the limit of their group.
type fairQueue[T, G comparable] struct {
	workqueue.TypedInterface[T]
	order *order[T, G]
}

// newFairQueue returns a queue. groupOf returns the group of an item, limit is how many items of a group are processed concurrently.
func newFairQueue[T, G comparable](name string, groupOf func(T) G, limit int) *fairQueue[T, G] {
	o := &order[T, G]{groupOf: groupOf, limit: limit, groups: map[G]*group[T]{}}
	return &fairQueue[T, G]{workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Name: name, Queue: o}), o}
}

// Done implements workqueue.TypedInterface.
func (q *fairQueue[T, G]) Done(item T) {
	q.order.release(q.order.groupOf(item))
	q.TypedInterface.Done(item)
}

// Len returns the number of waiting items, including those beyond the limit of their group.
func (q *fairQueue[T, G]) Len() int {
	q.order.mu.Lock()
	defer q.order.mu.Unlock()
	return q.order.len
}

// LenOf returns the number of waiting items of a group.
func (q *fairQueue[T, G]) LenOf(key G) int {
	q.order.mu.Lock()
	defer q.order.mu.Unlock()
	if g := q.order.groups[key]; g != nil {
		return len(g.items)
	}
	return 0
}

// order stores the items of each group in order, and the groups in the order of their turns. It implements workqueue.Queue.
type order[T, G comparable] struct {
	groupOf func(T) G
	limit   int

	mu     sync.Mutex
	groups map[G]*group[T] // those with items that wait or are processed
	turns  []G             // groups of which an item can be processed now
	len    int             // of all groups
}

type group[T any] struct {
	items   []T
	running int
	inTurns bool
}

// Touch implements workqueue.Queue. An item that is added again keeps its position.
func (o *order[T, G]) Touch(T) {}

// Push implements workqueue.Queue.
func (o *order[T, G]) Push(item T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := o.groupOf(item)
	g := o.groups[key]
	if g == nil {
		g = &group[T]{}
		o.groups[key] = g
	}
	g.items = append(g.items, item)
	o.len++
	o.schedule(key, g)
}

// Len implements workqueue.Queue. It is 0 if no item can be processed now, so that workers wait.
func (o *order[T, G]) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.turns) == 0 {
		return 0
	}
	return o.len
}

// Pop implements workqueue.Queue. Len must not be 0.
func (o *order[T, G]) Pop() T {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := o.turns[0]
	o.turns = o.turns[1:]
	g := o.groups[key]
	item := g.items[0]
	g.items, g.inTurns = g.items[1:], false
	g.running++
	o.len--
	o.schedule(key, g)
	return item
}

// release records that an item of a group has been processed.
func (o *order[T, G]) release(key G) {
	o.mu.Lock()
	defer o.mu.Unlock()
	g := o.groups[key]
	if g == nil {
		return
	}
	g.running--
	if g.running == 0 && len(g.items) == 0 {
		delete(o.groups, key)
		return
	}
	o.schedule(key, g)
}

// schedule appends a group to the turns if one of its items can be processed. Callers must hold o.mu.
func (o *order[T, G]) schedule(key G, g *group[T]) {
	if g.inTurns || len(g.items) == 0 || g.running >= o.limit {
		return
	}
	g.inTurns = true
	o.turns = append(o.turns, key)
}
