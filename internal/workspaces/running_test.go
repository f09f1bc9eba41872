package workspaces

import (
	"context"
	"slices"
	"testing"
)

func TestRunning(t *testing.T) {
	var running Running[string, int]
	ended := make(chan int, 3)
	run := func(value int) func(context.Context) {
		return func(ctx context.Context) {
			<-ctx.Done()
			running.All() // must not wait for StopExcept
			ended <- value
		}
	}
	running.Start(t.Context(), "a", 1, run(1))
	running.Start(t.Context(), "b", 2, run(2), run(2))
	if value, found := running.Get("b"); !found || value != 2 {
		t.Errorf("the part of b is %d, %t", value, found)
	}

	if stopped := running.StopExcept(func(key string, value int) bool { return key == "a" && value == 1 }); !slices.Equal(stopped, []int{2}) {
		t.Errorf("stopped %v, want 2", stopped)
	}
	if len(ended) != 2 {
		t.Errorf("%d functions have ended when b is stopped, want 2", len(ended))
	}
	if _, found := running.Get("b"); found || !slices.Equal(running.All(), []int{1}) {
		t.Errorf("after b was stopped, %v run", running.All())
	}
	running.StopAll()
	if len(ended) != 3 || len(running.All()) != 0 {
		t.Errorf("%d functions have ended, and %v run", len(ended), running.All())
	}
}

func TestRunningEndsWithItsContext(t *testing.T) {
	var running Running[string, int]
	ctx, cancel := context.WithCancel(t.Context())
	running.Start(ctx, "a", 1, func(ctx context.Context) { <-ctx.Done() })
	cancel()
	running.StopAll() // waits
}
