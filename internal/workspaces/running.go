package workspaces

import (
	"context"
	"sync"
)

// Running are the parts of a controller that run for keys: for the URLs of an export, or for kinds behind them. Its owner decides which
// keys have a part, so that their number is bounded by URLs and kinds. The zero value has no parts. Methods can be called concurrently; a
// key has one owner, which calls Start only if Get finds nothing.
type Running[K comparable, V any] struct {
	mu    sync.Mutex
	parts map[K]*part[V]
}

type part[V any] struct {
	value      V
	cancel     context.CancelFunc
	goroutines sync.WaitGroup
}

// Start runs functions until the part of the key is stopped or the context ends.
func (r *Running[K, V]) Start(ctx context.Context, key K, value V, run ...func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	started := &part[V]{value: value, cancel: cancel}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parts == nil {
		r.parts = map[K]*part[V]{}
	}
	r.parts[key] = started
	for _, function := range run {
		started.goroutines.Go(func() { function(ctx) })
	}
}

// StopExcept stops the parts that keep does not accept, and returns them when their functions have returned. The functions may call the
// other methods meanwhile, which do not find the stopped parts.
func (r *Running[K, V]) StopExcept(keep func(K, V) bool) []V {
	var stopped []*part[V]
	r.mu.Lock()
	for key, running := range r.parts {
		if !keep(key, running.value) {
			running.cancel()
			delete(r.parts, key)
			stopped = append(stopped, running)
		}
	}
	r.mu.Unlock()
	values := make([]V, 0, len(stopped))
	for _, ended := range stopped {
		ended.goroutines.Wait()
		values = append(values, ended.value)
	}
	return values
}

// StopAll is StopExcept for all parts.
func (r *Running[K, V]) StopAll() []V {
	return r.StopExcept(func(K, V) bool { return false })
}

// Get returns the part of a key.
func (r *Running[K, V]) Get(key K) (V, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if running := r.parts[key]; running != nil {
		return running.value, true
	}
	var none V
	return none, false
}

// All returns all parts.
func (r *Running[K, V]) All() []V {
	r.mu.Lock()
	defer r.mu.Unlock()
	values := make([]V, 0, len(r.parts))
	for _, running := range r.parts {
		values = append(values, running.value)
	}
	return values
}
