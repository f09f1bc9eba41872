package scheduling

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
)

// TestAdmitBurst places many more workspaces than the shard can have, and faster than they are created and counted.
func TestAdmitBurst(t *testing.T) {
	const hard, burst, createdPerCount = 1000, 5000, 10
	shard := withLimits("own", 0, hard)
	all := []*corev1alpha1.Shard{shard}
	s := New("own", fakeHeartbeats{})
	counted, created, placed := int64(900), int64(900), 0
	report := func() shardingv1alpha1.ShardReportSpec { return withUsed(reportWithLoad(counted, 0), counted) }
	for request := range burst {
		if _, err := s.Choose(all, labels.Everything(), report(), ""); err == nil {
			placed++
		}
		if request%createdPerCount == 0 {
			counted = created
		}
		if request%3 == 0 && s.Admit(shard, labels.Everything(), report()) == nil {
			created++
		}
	}
	if created != hard {
		t.Errorf("%d of %d workspaces were created, of %d that were placed", created, hard, placed)
	}
	if int64(placed) <= hard-900 {
		t.Errorf("only %d workspaces were placed: the limit was not under test", placed)
	}
	if err := s.Admit(shard, labels.Everything(), report()); err == nil || err.Error() != `No available shards to schedule the workspace: shard "own" is full: it has 1000 of 1000 workspaces` {
		t.Errorf("got %v", err)
	}
}

func TestAdmit(t *testing.T) {
	byName := labels.SelectorFromSet(labels.Set{"name": "other"})
	for name, tc := range map[string]struct {
		shard    *corev1alpha1.Shard
		selector labels.Selector
		want     bool
	}{
		"open":           {newShard("own"), labels.Everything(), true},
		"closed":         {newShard("own", corev1alpha1.UnschedulableAnnotationKey), labels.Everything(), false},
		"other selector": {newShard("own"), byName, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := New("own", fakeHeartbeats{}).Admit(tc.shard, tc.selector, reportWithLoad(0, 0)); (err == nil) != tc.want {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestUncountedAdmissions matters because the load stays the same if what was admitted or chosen is not created.
func TestUncountedAdmissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shard := newShard("own")
		s := New("own", fakeHeartbeats{})
		admits := func() bool { return s.Admit(shard, labels.Everything(), reportWithLoad(0, 1)) == nil }
		chooses := func() bool {
			_, err := s.Choose([]*corev1alpha1.Shard{shard}, labels.Everything(), reportWithLoad(0, 1), "")
			return err == nil
		}
		if !admits() || admits() || !chooses() || chooses() {
			t.Error("not exactly one was admitted and chosen")
		}
		if s.Release("own"); !admits() {
			t.Error("none was admitted after one was released")
		}
		s.Release("unknown")
		time.Sleep(maxUncounted + time.Second)
		if !admits() || !chooses() {
			t.Error("those that are in no load count for ever")
		}
	})
}
