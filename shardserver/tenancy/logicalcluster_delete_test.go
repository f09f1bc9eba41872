package tenancy

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/content"
)

func TestDeferContentStatus(t *testing.T) {
	remaining := func(age time.Duration, finalizers ...string) *content.Remaining {
		left := content.NewRemaining()
		left.Count(schema.GroupResource{Resource: "namespaces"}, finalizers, time.Now().Add(-age))
		return left
	}
	for sentence, tc := range map[string]struct {
		change func(*corev1alpha1.LogicalCluster)
		left   *content.Remaining
		delay  time.Duration
		want   bool
	}{
		"deletion has just started":                            {left: remaining(0), want: true},
		"deletion takes long":                                  {left: remaining(time.Minute)},
		"deletion timestamp in the future":                     {left: remaining(-time.Minute)},
		"deletion is delayed by the retry limiter":             {left: remaining(time.Minute), delay: time.Minute, want: true},
		"deletion of objects with finalizers has just started": {left: remaining(0, "example.com/one"), want: true},
		"condition is already set": {left: remaining(0), change: func(c *corev1alpha1.LogicalCluster) {
			conditionsv1alpha1.MarkTrue(c, corev1alpha1.WorkspaceContentDeleted)
		}},
		"terminators remain": {left: remaining(0), change: func(c *corev1alpha1.LogicalCluster) {
			c.Status.Terminators = []corev1alpha1.LogicalClusterTerminator{"a"}
		}},
	} {
		cluster := &corev1alpha1.LogicalCluster{}
		if tc.change != nil {
			tc.change(cluster)
		}
		if got := deferContentStatus(cluster, tc.left, time.Now(), tc.delay); got != tc.want {
			t.Errorf("%s: got %v", sentence, got)
		}
	}
}

func TestRetryLimiter(t *testing.T) {
	now := time.Now()
	l := newRetryLimiter()
	for i := range retryBurst {
		if delay := l.delay(now); delay != 0 {
			t.Fatalf("retry %d within the burst is delayed for %s", i, delay)
		}
	}
	var last time.Duration
	for i := 1; i <= 10_000; i++ {
		delay := l.delay(now)
		if delay < last || delay > maxRetryDelay {
			t.Fatalf("retry %d is delayed for %s, the previous one for %s", i, delay, last)
		}
		last = delay
	}
	if last != maxRetryDelay {
		t.Errorf("the last retry is delayed for %s", last)
	}
	if delay := l.delay(now.Add(2 * maxRetryDelay)); delay != 0 {
		t.Errorf("a retry after a pause is delayed for %s", delay)
	}
}
