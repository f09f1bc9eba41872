package flowcontrol

import (
	"context"
	"slices"
	"sync"
)

// limiter limits the concurrent requests of each flow, in FIFO order. Flows are independent of each other. A flow without
// requests is not in the map.
type limiter struct {
	mu    sync.Mutex
	flows map[flow]*flowState
	// limit is the number of concurrent requests per flow, waiting the number of requests that may wait.
	limit, maxWaiting int
}

// flowState is the state of one flow.
type flowState struct {
	running int
	waiting []chan struct{} // closed when the request may proceed
}

// acquire waits until a request may proceed. If it returns true, the caller must call leave. It returns false if too many
// requests wait, or if the context ends first.
func (t *limiter) acquire(ctx context.Context, owner flow) bool {
	ready, ok := t.tryAcquire(owner)
	if ready == nil {
		return ok
	}
	select {
	case <-ready:
		return true
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := slices.Index(t.flows[owner].waiting, ready); at >= 0 {
		t.flows[owner].waiting = slices.Delete(t.flows[owner].waiting, at, at+1)
	} else {
		t.releaseLocked(owner) // the request was admitted concurrently
	}
	return false
}

// tryAcquire admits a request (ok), refuses it (not ok), or returns a channel that is closed when the request may proceed.
func (t *limiter) tryAcquire(owner flow) (ready chan struct{}, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.flows[owner]
	if f == nil {
		f = &flowState{}
		t.flows[owner] = f
	}
	switch {
	case f.running < t.limit:
		f.running++
		return nil, true
	case len(f.waiting) >= t.maxWaiting:
		return nil, false
	}
	ready = make(chan struct{})
	f.waiting = append(f.waiting, ready)
	return ready, true
}

func (t *limiter) release(owner flow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.releaseLocked(owner)
}

// releaseLocked gives the slot of a request to the next one of its flow. Callers must hold mu.
func (t *limiter) releaseLocked(owner flow) {
	f := t.flows[owner]
	if len(f.waiting) > 0 {
		close(f.waiting[0])
		f.waiting = f.waiting[1:]
		return
	}
	if f.running--; f.running == 0 {
		delete(t.flows, owner)
	}
}
