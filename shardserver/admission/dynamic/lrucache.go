package dynamic

import (
	"container/list"
	"sync"
	"time"
)

// lruCache is an LRU cache: it keeps at most max values, and none longer than idle after its last use. Idle values are
// removed at the next access to any key, which every write on the shard makes.
type lruCache[K comparable, V any] struct {
	max  int
	idle time.Duration
	now  func() time.Time

	mu      sync.Mutex
	entries map[K]*list.Element
	// order is a list of *cached[K, V], the most recently used in front.
	order *list.List
}

type cacheEntry[K comparable, V any] struct {
	key   K
	value V
	used  time.Time
}

func newLRUCache[K comparable, V any](size int, idle time.Duration) *lruCache[K, V] {
	return &lruCache[K, V]{max: size, idle: idle, now: time.Now, entries: map[K]*list.Element{}, order: list.New()}
}

// get returns the value of a key, if there is one.
func (c *lruCache[K, V]) get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	element, ok := c.entries[key]
	if ok {
		element.Value.(*cacheEntry[K, V]).used = now
		c.order.MoveToFront(element)
	}
	c.expire(now)
	if !ok {
		var none V
		return none, false
	}
	return element.Value.(*cacheEntry[K, V]).value, true
}

// getOrAdd returns the value of a key, and adds it if there is none.
func (c *lruCache[K, V]) getOrAdd(key K, value func() V) V {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if element, ok := c.entries[key]; ok {
		element.Value.(*cacheEntry[K, V]).used = now
		c.order.MoveToFront(element)
		return element.Value.(*cacheEntry[K, V]).value
	}
	return c.insert(key, value(), now)
}

// set adds or replaces the value of a key.
func (c *lruCache[K, V]) set(key K, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.entries[key]; ok {
		c.evict(element)
	}
	c.insert(key, value, c.now())
}

// remove removes the entry of a key.
func (c *lruCache[K, V]) remove(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.entries[key]; ok {
		c.evict(element)
	}
	c.expire(c.now())
}

func (c *lruCache[K, V]) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

// insert adds a value. Callers must hold the lock.
func (c *lruCache[K, V]) insert(key K, value V, now time.Time) V {
	c.entries[key] = c.order.PushFront(&cacheEntry[K, V]{key: key, value: value, used: now})
	if len(c.entries) > c.max {
		c.evict(c.order.Back())
	}
	c.expire(now)
	return value
}

// expire removes values that were not used for the idle time. Callers must hold the lock.
func (c *lruCache[K, V]) expire(now time.Time) {
	for last := c.order.Back(); last != nil && now.Sub(last.Value.(*cacheEntry[K, V]).used) > c.idle; last = c.order.Back() {
		c.evict(last)
	}
}

// evict removes an element. Callers must hold the lock.
func (c *lruCache[K, V]) evict(element *list.Element) {
	delete(c.entries, element.Value.(*cacheEntry[K, V]).key)
	c.order.Remove(element)
}
