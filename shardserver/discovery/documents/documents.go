// Package documents caches documents by the hash of their input: those of discovery and OpenAPI, which are expensive to build
// and equal for many logical clusters. Concurrent calls share one build; the number and size of documents and the number of
// concurrent builds are bounded. The content of documents does not belong here.
package documents

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"k8s.io/utils/lru"
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

	mu       sync.Mutex
	entries  *lru.Cache // of entry[V] by K
	bytes    int64      // of all entries
	building map[K]*build[V]
}

type entry[V any] struct {
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
	c := &Cache[K, V]{limits: limits, slots: make(chan struct{}, limits.Builds), building: map[K]*build[V]{}}
	// Entries are added and evicted only while mu is held.
	c.entries = lru.NewWithEvictionFunc(limits.Count, func(_ lru.Key, evicted any) { c.bytes -= evicted.(entry[V]).bytes })
	return c
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
	if cached, ok := c.entries.Get(key); ok {
		return cached.(entry[V]).value, true, nil, false
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
	if current.err == nil && bytes <= c.limits.Bytes {
		c.bytes += bytes
		c.entries.Add(key, entry[V]{value: current.value, bytes: bytes})
	}
	for c.bytes > c.limits.Bytes {
		c.entries.RemoveOldest()
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
	return Stats{Cached: int64(c.entries.Len()), Bytes: c.bytes, Built: c.built.Load()}
}
