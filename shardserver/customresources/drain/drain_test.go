package drain

import (
	"testing"
	"time"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestWaiting(t *testing.T) {
	for name, tc := range map[string]struct {
		deleted     int
		since, want time.Duration
	}{
		"as long as something goes":  {500, time.Hour, time.Millisecond},
		"at first often":             {0, 0, minWait},
		"then less":                  {0, 8 * time.Second, 2 * time.Second},
		"in the end every 5 seconds": {0, time.Hour, maxWait},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Wait(tc.deleted, tc.since); got != tc.want {
				t.Errorf("Wait() = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestGate(t *testing.T) {
	gate := Gate{AtOnce: 2}
	a, b := logicalcluster.MustParseName("a"), logicalcluster.MustParseName("b")
	for i, step := range []struct {
		cluster logicalcluster.Name
		enters  bool
	}{{a, true}, {a, true}, {a, false}, {b, true}} {
		if got := gate.Enter(step.cluster); got != step.enters {
			t.Errorf("step %d: Enter(%s) = %t, each logical cluster has two places", i, step.cluster, got)
		}
	}
	gate.Leave(a)
	if !gate.Enter(a) {
		t.Error("a place that was given back is lost")
	}
	for _, cluster := range []logicalcluster.Name{a, a, b} {
		gate.Leave(cluster)
	}
	if len(gate.busy) > 0 {
		t.Errorf("kept for nobody: %v", gate.busy)
	}
}
