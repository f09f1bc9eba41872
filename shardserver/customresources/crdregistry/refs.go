package crdregistry

import (
	"sync"
	"sync/atomic"
)

// refTable holds values by key for as long as they are referenced.
type refTable[K comparable, V any] struct {
	// mu guards entries.
	mu      *sync.RWMutex
	entries map[K]*ref[V]
	// onRemove is called with a value that loses its last reference, while mu is held.
	onRemove func(V)
}

// ref is a value and the number of its references.
type ref[V any] struct {
	value V
	count atomic.Int64
}

func newRefTable[K comparable, V any](mu *sync.RWMutex) *refTable[K, V] {
	return &refTable[K, V]{mu: mu, entries: map[K]*ref[V]{}, onRemove: func(V) {}}
}

// retain adds a reference to the value of a key, creating the value for the first one. Callers must hold mu.
func (t *refTable[K, V]) retain(key K, create func() V) *ref[V] {
	r := t.entries[key]
	if r == nil {
		r = &ref[V]{value: create()}
		t.entries[key] = r
	}
	return r.retain()
}

// retain adds a reference to a value that its table contains. Callers must hold mu, for reading at least.
func (r *ref[V]) retain() *ref[V] {
	r.count.Add(1)
	return r
}

// release drops a reference and removes the value with its last one, which it reports. Callers must not hold mu.
func (t *refTable[K, V]) release(key K, r *ref[V]) (removed bool) {
	if r.count.Add(-1) > 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.count.Load() > 0 || t.entries[key] != r { // retained again, or removed by another goroutine
		return false
	}
	delete(t.entries, key)
	t.onRemove(r.value)
	return true
}
