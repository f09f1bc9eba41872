package dynamic

import (
	"sync"

	"k8s.io/utils/lru"
)

// lruCache is an LRU cache with typed keys and values.
type lruCache[K comparable, V any] struct {
	entries *lru.Cache
	// mu makes getOrAdd atomic.
	mu sync.Mutex
}

func newLRUCache[K comparable, V any](size int) *lruCache[K, V] {
	return &lruCache[K, V]{entries: lru.New(size)}
}

// get returns the value of a key, if there is one.
func (c *lruCache[K, V]) get(key K) (value V, ok bool) {
	if cached, found := c.entries.Get(key); found {
		value, ok = cached.(V)
	}
	return value, ok
}

// getOrAdd returns the value of a key, and adds it if there is none.
func (c *lruCache[K, V]) getOrAdd(key K, newValue func() V) V {
	c.mu.Lock()
	defer c.mu.Unlock()
	value, ok := c.get(key)
	if !ok {
		value = newValue()
		c.entries.Add(key, value)
	}
	return value
}
