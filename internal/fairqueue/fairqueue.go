// Package fairqueue has a work queue that is shared by tenants. Their items are served in turn, so that one with many items delays
// another's first by one item for each tenant; and a tenant occupies a limited number of workers, so that one whose items take long leaves
// workers to others.
package fairqueue

import (
	"sync"

	"k8s.io/client-go/util/workqueue"
)

// Queue is a work queue with groups of items, such as tenants. A worker that calls Done must call Get next, as controllers do: it is the
// one that gets what Done lets follow. When the queue is shut down, items beyond the limit of their group are dropped.
type Queue[T, G comparable] struct {
	workqueue.TypedInterface[T]
	order *order[T, G]
}

// New returns a queue. groupOf returns the group of an item, limit is how many items of a group are processed at once.
func New[T, G comparable](name string, groupOf func(T) G, limit int) *Queue[T, G] {
	o := &order[T, G]{groupOf: groupOf, limit: limit, groups: map[G]*group[T]{}}
	return &Queue[T, G]{workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Name: name, Queue: o}), o}
}

// Done implements workqueue.TypedInterface.
func (q *Queue[T, G]) Done(item T) {
	q.order.release(q.order.groupOf(item))
	q.TypedInterface.Done(item)
}

// Len returns the number of items that wait, those beyond the limit of their group included.
func (q *Queue[T, G]) Len() int {
	q.order.mu.Lock()
	defer q.order.mu.Unlock()
	return q.order.len
}

// LenOf returns the number of items of a group that wait.
func (q *Queue[T, G]) LenOf(key G) int {
	q.order.mu.Lock()
	defer q.order.mu.Unlock()
	if g := q.order.groups[key]; g != nil {
		return len(g.items)
	}
	return 0
}

// order keeps the items of each group in order, and the groups in the order in which they have their turn. It implements
// workqueue.Queue.
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

// Touch implements workqueue.Queue. An item that is added again keeps its place.
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

// release notes that an item of a group is processed no longer.
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

// schedule gives a group its turn, after those that have theirs, if an item of it can be processed. Callers hold o.mu.
func (o *order[T, G]) schedule(key G, g *group[T]) {
	if g.inTurns || len(g.items) == 0 || g.running >= o.limit {
		return
	}
	g.inTurns = true
	o.turns = append(o.turns, key)
}
