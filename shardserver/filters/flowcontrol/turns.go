package flowcontrol

import (
	"context"
	"slices"
	"sync"
)

// turns lets a number of requests of each flow on at a time, in the order in which they came. Flows know nothing of each
// other. A flow without requests is not in the map.
type turns struct {
	mu sync.Mutex
	of map[flow]*turn
	// limit is how many requests of a flow are let on, waiting how many more may wait.
	limit, waiting int
}

// turn is the state of one flow.
type turn struct {
	on      int
	waiting []chan struct{} // closed when it is that request's turn
}

// enter waits until a request may go on, which leave ends. It returns false if it may not: because too many wait, or
// because the context ended first.
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
		t.pass(of) // it had been let on just now
	}
	return false
}

// join lets a request on (ok), refuses it (not ok), or returns what is closed when it may go on.
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

// pass gives the place of a request to the next one of its flow.
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
