package shardserver

import (
	"sync"
	"testing"
	"time"
)

func TestNothingBeginsInTheBackgroundOfAServerThatHasEnded(t *testing.T) {
	s := &Server{}
	release, ended := make(chan struct{}), make(chan struct{})
	s.inBackground(func() { <-release })
	// Hooks of the API server come beside the end of the server: before it, or not at all.
	var hooks sync.WaitGroup
	for range 8 {
		hooks.Go(func() { s.inBackground(func() { <-release }) })
	}
	go func() {
		defer close(ended)
		s.running.Wait()
	}()
	select {
	case <-ended:
		t.Error("the server ended before what runs in its background")
	case <-time.After(10 * time.Millisecond):
	}
	close(release)
	<-ended
	hooks.Wait()
	s.inBackground(func() { t.Error("something began after the end of the server") })
}
