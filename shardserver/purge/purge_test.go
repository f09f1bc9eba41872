package purge

import (
	"testing"
	"time"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestRequeueAfter(t *testing.T) {
	for name, tc := range map[string]struct {
		deleted     int
		since, want time.Duration
	}{
		"after deletions":                 {500, time.Hour, time.Millisecond},
		"at first":                        {0, 0, minWait},
		"then a fraction of the duration": {0, 8 * time.Second, 2 * time.Second},
		"at most every 5 seconds":         {0, time.Hour, maxWait},
	} {
		t.Run(name, func(t *testing.T) {
			if got := RequeueAfter(tc.deleted, tc.since); got != tc.want {
				t.Errorf("RequeueAfter() = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestLimiter(t *testing.T) {
	limiter := Limiter{PerCluster: 2}
	a, b := logicalcluster.MustParseName("a"), logicalcluster.MustParseName("b")
	for i, step := range []struct {
		cluster  logicalcluster.Name
		admitted bool
	}{{a, true}, {a, true}, {a, false}, {b, true}} {
		if got := limiter.TryAcquire(step.cluster); got != step.admitted {
			t.Errorf("step %d: TryAcquire(%s) = %t, two batches of each logical cluster may run", i, step.cluster, got)
		}
	}
	limiter.Release(a)
	if !limiter.TryAcquire(a) {
		t.Error("TryAcquire fails after Release")
	}
	for _, cluster := range []logicalcluster.Name{a, a, b} {
		limiter.Release(cluster)
	}
	if len(limiter.running) > 0 {
		t.Errorf("logical clusters without batches remain: %v", limiter.running)
	}
}
