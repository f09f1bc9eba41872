// Package background runs what a server does beside its requests, until the server ends.
package background

import "k8s.io/apimachinery/pkg/util/waitgroup"

// Group is what runs in the background of one server. Its zero value is ready for use, and it is safe for concurrent use.
type Group struct{ running waitgroup.SafeWaitGroup }

// Go runs a function that Wait waits for, or does nothing once Wait was called: API servers call their hooks beside all
// else, maybe after their end.
func (g *Group) Go(run func()) {
	if g.running.Add(1) != nil {
		return
	}
	go func() {
		defer g.running.Done()
		run()
	}()
}

// Wait returns when all has ended, and nothing begins from then on.
func (g *Group) Wait() { g.running.Wait() }
