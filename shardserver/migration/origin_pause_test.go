package migration

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/fence"
)

// TestPausesAreBounded runs moves whose origin has a replica that ends at any time around the first pause, or that does not answer for
// long, and destinations that need any time for the rest.
func TestPausesAreBounded(t *testing.T) {
	const (
		step  = 100 * time.Millisecond
		slack = time.Second // etcd removes a key a little after its lease has expired
	)
	for end := -8 * time.Second; end <= 2*time.Second; end += step {
		for _, rest := range []time.Duration{0, time.Second, maxPause - fence.PauseTimeout} {
			for _, retry := range []time.Duration{step, 3 * time.Second} {
				m := newPauseModel(end+fence.LeaseTTL+slack, rest, retry)
				if !m.run(time.Minute) {
					t.Fatalf("replica ends at %s, rest takes %s, retry every %s: the logical cluster does not move", end, rest, retry)
				}
				if m.pauses > 2 || m.longest > maxPause || m.refused > fence.PauseTimeout+maxPause {
					t.Errorf("replica ends at %s, rest takes %s, retry every %s: %d pauses, %s at once and %s in total", end, rest, retry, m.pauses, m.longest, m.refused)
				}
			}
		}
	}
	m := newPauseModel(time.Hour, 0, step)
	if m.run(10*time.Minute) || m.longest > fence.PauseTimeout || m.refused > 15*time.Second {
		t.Errorf("replica that never acknowledges: %s at once, %s of 10 minutes in total", m.longest, m.refused)
	}
	m = newPauseModel(0, time.Hour, step)
	if m.run(10*time.Minute) || m.longest > maxPause || m.refused > 30*time.Second {
		t.Errorf("destination that never takes over: %s at once, %s of 10 minutes in total", m.longest, m.refused)
	}
}

// pauseModel is a destination that pauses writes until it takes over. Times are from its first attempt.
type pauseModel struct {
	// acknowledged is from when all registered replicas acknowledge, rest how long the destination needs in a pause, retry how long it
	// waits after a failure.
	acknowledged, rest, retry time.Duration

	annotations      map[string]string
	pauses           int
	longest, refused time.Duration
}

func newPauseModel(acknowledged, rest, retry time.Duration) *pauseModel {
	return &pauseModel{acknowledged: acknowledged, rest: rest, retry: retry, annotations: map[string]string{}}
}

// run reports whether the destination takes over in time.
func (m *pauseModel) run(limit time.Duration) bool {
	start := time.Now()
	for now := time.Duration(0); now < limit; now += m.retry {
		_, until, err := beginPause(m.annotations, "root:m", start.Add(now))
		if err != nil {
			continue
		}
		m.pauses++
		waited := max(0, m.acknowledged-now)
		taken, took := waited+m.rest, waited+m.rest
		switch {
		case waited > fence.PauseTimeout:
			took = fence.PauseTimeout
		case taken > until.Sub(start.Add(now)):
			took = until.Sub(start.Add(now))
		}
		m.longest, m.refused, now = max(m.longest, took), m.refused+took, now+took
		if took == taken {
			return true
		}
	}
	return false
}

func TestBeginPause(t *testing.T) {
	now, annotations := time.Now(), map[string]string{}
	token, until, err := beginPause(annotations, "root:m", now)
	if err != nil || annotations[corev1alpha1.WritesPausedAnnotationKey] != token || !until.Equal(now.Add(maxPause)) {
		t.Fatalf("%q until %s: %v", token, until, err)
	}
	if got, paused := pausedUntil(&corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}); !paused || !got.Equal(until.Truncate(0)) {
		t.Errorf("paused until %s, want %s", got, until)
	}
	for wait, early := range map[time.Duration]bool{0: true, pauseInterval - 1: true, pauseInterval: false, -time.Second: false} {
		again := map[string]string{corev1alpha1.PauseAfterAnnotationKey: annotations[corev1alpha1.PauseAfterAnnotationKey]}
		if _, _, err := beginPause(again, "root:m", now.Add(wait)); errors.As(err, new(*tooEarlyError)) != early {
			t.Errorf("after %s: %v", wait, err)
		}
	}
	// The times between pauses grow.
	for _, want := range []time.Duration{2 * pauseInterval, 4 * pauseInterval, 8 * pauseInterval, 16 * pauseInterval, 32 * pauseInterval, maxPauseInterval, maxPauseInterval} {
		after, _ := nextPause(annotations)
		if _, _, err := beginPause(annotations, "root:m", after); err != nil {
			t.Fatal(err)
		}
		next, interval := nextPause(annotations)
		if interval != want || next.Sub(after) != want {
			t.Errorf("the next pause is possible after %s, interval %s, want %s", next.Sub(after), interval, want)
		}
		if _, _, err := beginPause(annotations, "root:m", next.Add(-1)); !errors.As(err, new(*tooEarlyError)) {
			t.Errorf("before: %v", err)
		}
	}
	if _, _, err := beginPause(map[string]string{corev1alpha1.PauseAfterAnnotationKey: "x"}, "root:m", now); err != nil {
		t.Error(err)
	}
}
