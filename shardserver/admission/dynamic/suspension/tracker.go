// Package suspension suspends expressions of tenants that exceed their cost limit repeatedly: those of admission
// policies, and the match conditions of policies and webhooks. An evaluation that exceeds its limit has used all the
// processor time that it may use, and each further request would do so again.
//
// While expressions are suspended, requests get an error at once, to which the failurePolicy applies as to any other
// error of the policy or webhook. A change of the expressions ends the suspension. A suspension is local to a server, and
// the condition ExpressionsWithinCostLimit of the LogicalCluster reports it.
package suspension

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/atoll-dev/atoll/internal/celcost"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// maxTracked bounds the expressions that are tracked, of all logical clusters.
	maxTracked = 1024
	// tolerated is the number of times that expressions may exceed their limit before they are suspended.
	tolerated = 3
	// The first suspension lasts shortest, each further one twice as long as the one before, up to Longest.
	shortest = 10 * time.Second
	// Longest is the duration of the longest suspension. Expressions that stay within their limit for twice that time
	// after a suspension are as new.
	Longest = 5 * time.Minute
)

// Expressions identify the expressions of one policy or webhook.
type Expressions struct {
	// Cluster is the logical cluster of the policy or webhook.
	Cluster logicalcluster.Name
	// Object is "<resource>/<name>".
	Object string
	// Content is a hash of the expressions.
	Content [sha256.Size]byte
}

// Tracker tracks the expressions that exceed their limit.
type Tracker struct {
	clock clock.PassiveClock
	// suspended receives what has been suspended, for the condition. It drops values without a receiver.
	suspended chan Expressions

	mu      sync.Mutex
	tracked map[Expressions]*record
}

// record is how often expressions have exceeded their limit.
type record struct {
	exceeded    int
	last, until time.Time
}

// NewTracker returns a Tracker without suspensions.
func NewTracker(clock clock.PassiveClock) *Tracker {
	return &Tracker{clock: clock, suspended: make(chan Expressions, maxTracked), tracked: map[Expressions]*record{}}
}

// Check returns an error if expressions are suspended.
func (t *Tracker) Check(expressions Expressions) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	tracked, found := t.tracked[expressions]
	if !found {
		return nil
	}
	remaining := tracked.until.Sub(t.clock.Now())
	if remaining <= 0 {
		return nil
	}
	return fmt.Errorf("the expressions of %s have exceeded their cost limit %d times and are suspended for %s: "+
		"change them so that they compare, format or iterate over less", expressions.Object, tracked.exceeded, remaining.Round(time.Second))
}

// Record records the outcome of an evaluation: the text of its error.
func (t *Tracker) Record(expressions Expressions, text string) {
	if !celcost.IsLimitExceeded(text) {
		return
	}
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	tracked, found := t.tracked[expressions]
	if !found || t.isStale(tracked, now) {
		tracked = &record{}
		t.makeRoom(now)
		t.tracked[expressions] = tracked
	}
	tracked.exceeded++
	tracked.last = now
	if tracked.exceeded <= tolerated {
		return
	}
	tracked.until = now.Add(min(Longest, shortest<<min(tracked.exceeded-tolerated-1, 10)))
	select {
	case t.suspended <- expressions:
	default:
	}
}

// isStale reports whether a record does not matter any more.
func (t *Tracker) isStale(tracked *record, now time.Time) bool {
	return now.Sub(tracked.last) > 3*Longest
}

// makeRoom removes a record if there are too many: all stale ones, or the one that has not changed for longest.
func (t *Tracker) makeRoom(now time.Time) {
	if len(t.tracked) < maxTracked {
		return
	}
	var oldest *Expressions
	for expressions, tracked := range t.tracked {
		if t.isStale(tracked, now) {
			delete(t.tracked, expressions)
			continue
		}
		if oldest == nil || tracked.last.Before(t.tracked[*oldest].last) {
			oldest = &expressions
		}
	}
	if len(t.tracked) >= maxTracked {
		delete(t.tracked, *oldest)
	}
}

// of returns the objects of a logical cluster whose expressions are suspended, as a sorted text.
func (t *Tracker) of(cluster logicalcluster.Name) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	names := map[string]bool{}
	for expressions, tracked := range t.tracked {
		if expressions.Cluster == cluster && tracked.until.After(now) {
			names[expressions.Object] = true
		}
	}
	return strings.Join(sortedKeys(names), ", ")
}
