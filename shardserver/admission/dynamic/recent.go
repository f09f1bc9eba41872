package dynamic

import (
	"container/list"
	"sync"
	"time"
)

// recent is an LRU cache: it keeps at most max values, and none longer than idle after its last use. Idle values are
// removed at the next access to any key, which every write on the shard makes.
type recent[K comparable, V any] struct {
	max  int
	idle time.Duration
	now  func() time.Time

	mu      sync.Mutex
	entries map[K]*list.Element
	// order is a list of *cached[K, V], the most recently used in front.
	order *list.List
}

type cached[K comparable, V any] struct {
	key   K
	value V
	used  time.Time
}

func newRecent[K comparable, V any](size int, idle time.Duration) *recent[K, V] {
	return &recent[K, V]{max: size, idle: idle, now: time.Now, entries: map[K]*list.Element{}, order: list.New()}
}

// get returns the value of a key, if there is one.
func (c *recent[K, V]) get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	element, ok := c.entries[key]
	if ok {
		element.Value.(*cached[K, V]).used = now
		c.order.MoveToFront(element)
	}
	c.expire(now)
	if !ok {
		var none V
		return none, false
	}
	return element.Value.(*cached[K, V]).value, true
}

// getOrAdd returns the value of a key, and adds it if there is none.
func (c *recent[K, V]) getOrAdd(key K, value func() V) V {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if element, ok := c.entries[key]; ok {
		element.Value.(*cached[K, V]).used = now
		c.order.MoveToFront(element)
		return element.Value.(*cached[K, V]).value
	}
	return c.push(key, value(), now)
}

// set adds or replaces the value of a key.
func (c *recent[K, V]) set(key K, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.entries[key]; ok {
		c.drop(element)
	}
	c.push(key, value, c.now())
}

// remove removes the entry of a key.
func (c *recent[K, V]) remove(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.entries[key]; ok {
		c.drop(element)
	}
	c.expire(c.now())
}

func (c *recent[K, V]) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

// push adds a value. Callers must hold the lock.
func (c *recent[K, V]) push(key K, value V, now time.Time) V {
	c.entries[key] = c.order.PushFront(&cached[K, V]{key: key, value: value, used: now})
	if len(c.entries) > c.max {
		c.drop(c.order.Back())
	}
	c.expire(now)
	return value
}

// expire removes values that were not used for the idle time. Callers must hold the lock.
func (c *recent[K, V]) expire(now time.Time) {
	for last := c.order.Back(); last != nil && now.Sub(last.Value.(*cached[K, V]).used) > c.idle; last = c.order.Back() {
		c.drop(last)
	}
}

// drop removes an element. Callers must hold the lock.
func (c *recent[K, V]) drop(element *list.Element) {
	delete(c.entries, element.Value.(*cached[K, V]).key)
	c.order.Remove(element)
}
