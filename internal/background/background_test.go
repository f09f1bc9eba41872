package background

import (
	"sync"
	"testing"
	"time"
)

func TestGoAfterWait(t *testing.T) {
	g := &Group{}
	release, ended := make(chan struct{}), make(chan struct{})
	g.Go(func() { <-release })
	// Hooks of the API server run concurrently with its shutdown: they either start before it, or do not start.
	var hooks sync.WaitGroup
	for range 8 {
		hooks.Go(func() { g.Go(func() { <-release }) })
	}
	go func() {
		defer close(ended)
		g.Wait()
	}()
	select {
	case <-ended:
		t.Error("the server ended before its background work")
	case <-time.After(10 * time.Millisecond):
	}
	close(release)
	<-ended
	hooks.Wait()
	g.Go(func() { t.Error("background work started after the end of the server") })
}
