// Package documents caches documents by the hash of their input: those of discovery and OpenAPI, which are expensive to build
// and equal for many logical clusters. Concurrent calls share one build; the number and size of documents and the number of
// concurrent builds are bounded. The content of documents does not belong here.
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
	// Count bounds the number of documents, Bytes their total size. The least recently used documents are evicted first. A
	// document larger than Bytes is returned and not cached.
	Count int
	Bytes int64
	// Builds bounds the concurrent builds. Further builds wait.
	Builds int
}

// Cache is an LRU cache of documents of type V. It is safe for concurrent use and has no goroutine.
type Cache[K comparable, V any] struct {
	limits Limits
	slots  chan struct{}
	built  atomic.Int64

	mu sync.Mutex
	// entries are the elements of recent by key; recent has the most recently used document in front.
	entries  map[K]*list.Element
	recent   *list.List
	bytes    int64
	building map[K]*build[V]
}

type entry[K comparable, V any] struct {
	key   K
	value V
	bytes int64
}

// build is the build of one document. Its fields may be read after done is closed.
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
		entries:  map[K]*list.Element{},
		recent:   list.New(),
		building: map[K]*build[V]{},
	}
}

// Get returns the document of a key. If it is not cached, one of the concurrent callers runs make, which returns it and its
// size in bytes. All of them get the error of make, or of a panic in it. Errors are not cached.
func (c *Cache[K, V]) Get(ctx context.Context, key K, buildFunc func() (V, int64, error)) (V, error) {
	for {
		value, found, current, owner := c.lookup(key)
		switch {
		case found:
			return value, nil
		case owner:
			c.buildFunc(ctx, key, current, buildFunc)
		}
		select {
		case <-current.done:
		case <-ctx.Done():
			var zero V
			return zero, ctx.Err()
		}
		if errors.Is(current.err, errCanceled) && ctx.Err() == nil {
			continue // the caller that had to build it was canceled
		}
		return current.value, current.err
	}
}

// errCanceled is the error of a build whose caller was canceled while waiting.
var errCanceled = errors.New("canceled while waiting to build")

// lookup returns a cached document, or its build, which the caller must run if it is mine.
func (c *Cache[K, V]) lookup(key K) (value V, found bool, current *build[V], owner bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.entries[key]; ok {
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

func (c *Cache[K, V]) buildFunc(ctx context.Context, key K, current *build[V], buildFunc func() (V, int64, error)) {
	var bytes int64
	defer func() { c.finish(key, current, bytes) }()
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		current.err = fmt.Errorf("%w: %w", errCanceled, ctx.Err())
		return
	}
	defer func() {
		if recovered := recover(); recovered != nil {
			current.err = fmt.Errorf("panic: %v\n%s", recovered, debug.Stack())
		}
	}()
	c.built.Add(1)
	current.value, bytes, current.err = buildFunc()
}

// finish caches a document, evicts others beyond the limits, and wakes up the waiting callers.
func (c *Cache[K, V]) finish(key K, current *build[V], bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.building, key)
	if current.err == nil {
		c.entries[key] = c.recent.PushFront(&entry[K, V]{key: key, value: current.value, bytes: bytes})
		c.bytes += bytes
	}
	for len(c.entries) > c.limits.Count || c.bytes > c.limits.Bytes {
		oldest := c.recent.Back()
		evicted := c.recent.Remove(oldest).(*entry[K, V])
		delete(c.entries, evicted.key)
		c.bytes -= evicted.bytes
	}
	close(current.done)
}

// Stats are the statistics of a cache.
type Stats struct {
	// Cached is the number of cached documents, Bytes their total size. Built counts the builds since the start.
	Cached, Bytes, Built int64
}

// Stats returns the current statistics.
func (c *Cache[K, V]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{Cached: int64(len(c.entries)), Bytes: c.bytes, Built: c.built.Load()}
}
