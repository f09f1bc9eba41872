// Package documents keeps what is expensive to make and equal for many: documents about an API, by the hash of what
// they are made from. One build serves everybody who asks meanwhile; memory is bounded by count and by bytes; so is
// the number of builds at a time. What a document says, and how it is served, is none of its business.
package documents

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Limits bound a cache.
type Limits struct {
	// Count is how many documents are kept, Bytes how large they may be together. What was not used for longest goes
	// first. A document larger than Bytes is served and not kept.
	Count int
	Bytes int64
	// Builds is how many documents may be built at the same time. Who needs another one waits.
	Builds int
}

// Cache keeps documents of type V by key. It is safe for concurrent use and owns no goroutine.
type Cache[K comparable, V any] struct {
	limits Limits
	slots  chan struct{}
	built  atomic.Int64

	mu sync.Mutex
	// kept are the elements of recent by key; recent has the document that was used last in front.
	kept     map[K]*list.Element
	recent   *list.List
	bytes    int64
	building map[K]*build[V]
}

type entry[K comparable, V any] struct {
	key   K
	value V
	bytes int64
}

// build is one document in the making. Its fields may be read once done is closed.
type build[V any] struct {
	done  chan struct{}
	value V
	err   error
}

// New returns an empty cache.
func New[K comparable, V any](limits Limits) *Cache[K, V] {
	return &Cache[K, V]{
		limits:   limits,
		slots:    make(chan struct{}, limits.Builds),
		kept:     map[K]*list.Element{},
		recent:   list.New(),
		building: map[K]*build[V]{},
	}
}

// Get returns the document behind a key. If nobody has it, make returns it and its size in bytes, in the goroutine of
// one of the callers. An error of make, which a panic in it is too, goes to all who wait, and is not kept.
func (c *Cache[K, V]) Get(ctx context.Context, key K, make func() (V, int64, error)) (V, error) {
	for {
		value, found, current, mine := c.look(key)
		switch {
		case found:
			return value, nil
		case mine:
			c.make(ctx, key, current, make)
		}
		select {
		case <-current.done:
		case <-ctx.Done():
			var none V
			return none, ctx.Err()
		}
		if errors.Is(current.err, errGaveUp) && ctx.Err() == nil {
			continue // whoever wanted to build it went away before it began
		}
		return current.value, current.err
	}
}

// errGaveUp is the outcome of a build whose caller did not wait for a slot.
var errGaveUp = errors.New("gave up waiting for a slot to build in")

// look returns a kept document, or the build of it, which the caller must do if it is the one who began it.
func (c *Cache[K, V]) look(key K) (value V, found bool, current *build[V], mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.kept[key]; ok {
		c.recent.MoveToFront(element)
		return element.Value.(*entry[K, V]).value, true, nil, false
	}
	if current, ok := c.building[key]; ok {
		return value, false, current, false
	}
	current = &build[V]{done: make(chan struct{})}
	c.building[key] = current
	return value, false, current, true
}

func (c *Cache[K, V]) make(ctx context.Context, key K, current *build[V], make func() (V, int64, error)) {
	var bytes int64
	defer func() { c.finish(key, current, bytes) }()
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		current.err = fmt.Errorf("%w: %w", errGaveUp, ctx.Err())
		return
	}
	defer func() {
		if problem := recover(); problem != nil {
			current.err = fmt.Errorf("panic: %v\n%s", problem, debug.Stack())
		}
	}()
	c.built.Add(1)
	current.value, bytes, current.err = make()
}

// finish keeps what was built, drops what is too much then, and tells who waits.
func (c *Cache[K, V]) finish(key K, current *build[V], bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.building, key)
	if current.err == nil {
		c.kept[key] = c.recent.PushFront(&entry[K, V]{key: key, value: current.value, bytes: bytes})
		c.bytes += bytes
	}
	for len(c.kept) > c.limits.Count || c.bytes > c.limits.Bytes {
		oldest := c.recent.Back()
		dropped := c.recent.Remove(oldest).(*entry[K, V])
		delete(c.kept, dropped.key)
		c.bytes -= dropped.bytes
	}
	close(current.done)
}

// Stats are numbers about a cache.
type Stats struct {
	// Kept documents are Bytes large together. Built counts every build since the start.
	Kept, Bytes, Built int64
}

// Stats returns the numbers of this moment.
func (c *Cache[K, V]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{Kept: int64(len(c.kept)), Bytes: c.bytes, Built: c.built.Load()}
}
