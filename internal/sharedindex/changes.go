package sharedindex

import "sync"

// changes are what a source said and the writer has not written yet, the latest of each record. They are as many as
// records have changed since, at most as many as there are: an etcd that is away costs no more than that.
type changes struct {
	mu   sync.Mutex
	news map[string]Change // by path
	// some has an element while there are any.
	some chan struct{}
}

func newChanges() *changes { return &changes{news: map[string]Change{}, some: make(chan struct{}, 1)} }

func (c *changes) add(change Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.news[change.Key.path()] = change
	select {
	case c.some <- struct{}{}:
	default:
	}
}

// take returns the changes, which are then the caller's.
func (c *changes) take() map[string]Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.news
	c.news = map[string]Change{}
	return taken
}
