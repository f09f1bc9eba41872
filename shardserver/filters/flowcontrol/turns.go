package flowcontrol

import (
	"context"
	"slices"
	"sync"
)

// turns limits the concurrent requests of each flow, in FIFO order. Flows are independent of each other. A flow without
// requests is not in the map.
type turns struct {
	mu sync.Mutex
	of map[flow]*turn
	// limit is the number of concurrent requests per flow, waiting the number of requests that may wait.
	limit, waiting int
}

// turn is the state of one flow.
type turn struct {
	on      int
	waiting []chan struct{} // closed when the request may proceed
}

// enter waits until a request may proceed. If it returns true, the caller must call leave. It returns false if too many
// requests wait, or if the context ends first.
func (t *turns) enter(ctx context.Context, of flow) bool {
	mine, ok := t.join(of)
	if mine == nil {
		return ok
	}
	select {
	case <-mine:
		return true
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := slices.Index(t.of[of].waiting, mine); at >= 0 {
		t.of[of].waiting = slices.Delete(t.of[of].waiting, at, at+1)
	} else {
		t.pass(of) // the request was admitted concurrently
	}
	return false
}

// join admits a request (ok), refuses it (not ok), or returns a channel that is closed when the request may proceed.
func (t *turns) join(of flow) (mine chan struct{}, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.of[of]
	if f == nil {
		f = &turn{}
		t.of[of] = f
	}
	switch {
	case f.on < t.limit:
		f.on++
		return nil, true
	case len(f.waiting) >= t.waiting:
		return nil, false
	}
	mine = make(chan struct{})
	f.waiting = append(f.waiting, mine)
	return mine, true
}

func (t *turns) leave(of flow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass(of)
}

// pass gives the slot of a request to the next one of its flow. Callers must hold mu.
func (t *turns) pass(of flow) {
	f := t.of[of]
	if len(f.waiting) > 0 {
		close(f.waiting[0])
		f.waiting = f.waiting[1:]
		return
	}
	if f.on--; f.on == 0 {
		delete(t.of, of)
	}
}
