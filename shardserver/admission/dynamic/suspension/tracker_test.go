package suspension

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const exceeded = "operation cancelled: actual cost limit exceeded"

func expressionsIn(cluster, name string) Expressions {
	return Expressions{Cluster: logicalcluster.MustParseName(cluster), Object: "validatingadmissionpolicies/" + name, Content: sha256.Sum256([]byte(name))}
}

func TestSuspensions(t *testing.T) {
	clock := testclock.NewFakePassiveClock(time.Unix(0, 0))
	tracker := NewTracker(clock)
	expensive, changed, other := expressionsIn("a", "expensive"), expressionsIn("a", "expensive"), expressionsIn("b", "expensive")
	changed.Content[0]++
	isSuspended := func(e Expressions) bool { return tracker.Check(e) != nil }
	for i := range tolerated {
		tracker.Record(expensive, exceeded)
		if isSuspended(expensive) {
			t.Fatalf("suspended after %d of %d tolerated times", i+1, tolerated)
		}
	}
	tracker.Record(expensive, "no such key: x")
	if isSuspended(expensive) {
		t.Error("suspended because of an ordinary error")
	}
	tracker.Record(expensive, exceeded)
	if !isSuspended(expensive) || isSuspended(changed) || isSuspended(other) {
		t.Errorf("suspended: %t, the changed policy: %t, the policy of another logical cluster: %t", isSuspended(expensive), isSuspended(changed), isSuspended(other))
	}
	if objects := tracker.of(logicalcluster.MustParseName("a")); objects != "validatingadmissionpolicies/expensive" || tracker.of(logicalcluster.MustParseName("b")) != "" {
		t.Errorf("got %q and %q", objects, tracker.of(logicalcluster.MustParseName("b")))
	}
	clock.SetTime(clock.Now().Add(shortest))
	if isSuspended(expensive) {
		t.Error("the first suspension has not ended")
	}
	tracker.Record(expensive, exceeded)
	clock.SetTime(clock.Now().Add(shortest))
	if !isSuspended(expensive) {
		t.Error("the second suspension is not longer")
	}
	for range 50 {
		tracker.Record(expensive, exceeded)
	}
	clock.SetTime(clock.Now().Add(Longest))
	if isSuspended(expensive) {
		t.Error("a suspension is longer than the longest")
	}
	clock.SetTime(clock.Now().Add(3 * Longest))
	tracker.Record(expensive, exceeded)
	if isSuspended(expensive) {
		t.Error("what happened long ago counts")
	}
}

func TestTheTrackerIsBounded(t *testing.T) {
	clock := testclock.NewFakePassiveClock(time.Unix(0, 0))
	tracker := NewTracker(clock)
	for i := range 2 * maxTracked {
		clock.SetTime(clock.Now().Add(time.Millisecond))
		tracker.Record(expressionsIn(fmt.Sprint("cluster-", i), "expensive"), exceeded)
	}
	if len(tracker.tracked) != maxTracked {
		t.Errorf("tracks %d, expected %d", len(tracker.tracked), maxTracked)
	}
	if _, found := tracker.tracked[expressionsIn(fmt.Sprint("cluster-", 2*maxTracked-1), "expensive")]; !found {
		t.Error("the newest is not tracked")
	}
	clock.SetTime(clock.Now().Add(4 * Longest))
	tracker.Record(expressionsIn("last", "expensive"), exceeded)
	if len(tracker.tracked) != 1 {
		t.Errorf("%d stale ones are tracked", len(tracker.tracked)-1)
	}
}
