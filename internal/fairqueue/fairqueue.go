// Package fairqueue has the order of a work queue that is shared by tenants: their items are served in turn, so that one with many items
// delays another's first by one item for each tenant.
package fairqueue

import "k8s.io/client-go/util/workqueue"

// queue keeps the items of each group in order, and the groups in the order in which they have their turn.
type queue[T, G comparable] struct {
	groupOf func(T) G
	items   map[G][]T // a group is removed with its last item
	turns   []G
	len     int
}

// New returns a queue for workqueue.TypedQueueConfig. groupOf returns the group of an item, such as its tenant.
func New[T, G comparable](groupOf func(T) G) workqueue.Queue[T] {
	return &queue[T, G]{groupOf: groupOf, items: map[G][]T{}}
}

// Touch implements workqueue.Queue. An item that is added again keeps its place.
func (q *queue[T, G]) Touch(T) {}

// Push implements workqueue.Queue.
func (q *queue[T, G]) Push(item T) {
	group := q.groupOf(item)
	if len(q.items[group]) == 0 {
		q.turns = append(q.turns, group)
	}
	q.items[group] = append(q.items[group], item)
	q.len++
}

// Len implements workqueue.Queue.
func (q *queue[T, G]) Len() int { return q.len }

// Pop implements workqueue.Queue. The queue must not be empty.
func (q *queue[T, G]) Pop() T {
	group := q.turns[0]
	q.turns = q.turns[1:]
	items := q.items[group]
	item := items[0]
	if len(items) == 1 {
		delete(q.items, group)
	} else {
		q.items[group] = items[1:]
		q.turns = append(q.turns, group)
	}
	q.len--
	return item
}
