// Package background runs the background goroutines of a server until the server ends.
package background

import "k8s.io/apimachinery/pkg/util/waitgroup"

// Group is a group of background goroutines of one server. Its zero value is ready for use, and it is safe for
// concurrent use.
type Group struct{ running waitgroup.SafeWaitGroup }

// Go runs a function in a goroutine that Wait waits for, or does nothing after Wait was called: API servers call their
// hooks concurrently, possibly after their end.
func (g *Group) Go(run func()) {
	if g.running.Add(1) != nil {
		return
	}
	go func() {
		defer g.running.Done()
		run()
	}()
}

// Wait returns when all goroutines have ended. Later calls of Go do nothing.
func (g *Group) Wait() { g.running.Wait() }
