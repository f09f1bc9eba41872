package sharedindex

import "sync"

// changeQueue contains the changes that are not written yet, the latest of each record. Its size is bounded by the
// number of records, for any duration of an etcd outage.
type changeQueue struct {
	mu      sync.Mutex
	pending map[string]Change // by path
	// ready has an element while changes are pending.
	ready chan struct{}
}

func newChangeQueue() *changeQueue {
	return &changeQueue{pending: map[string]Change{}, ready: make(chan struct{}, 1)}
}

func (q *changeQueue) add(change Change) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending[change.Key.path()] = change
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// drain removes and returns all pending changes.
func (q *changeQueue) drain() map[string]Change {
	q.mu.Lock()
	defer q.mu.Unlock()
	pending := q.pending
	q.pending = map[string]Change{}
	return pending
}
