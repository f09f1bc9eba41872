package tenancy

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/content"
	"github.com/atoll-dev/atoll/shardserver/storage"
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

func TestInRounds(t *testing.T) {
	maps, accounts, namespaces := &storage.Resource{Prefix: "maps"}, &storage.Resource{Prefix: "accounts"}, &storage.Resource{Prefix: "namespaces"}
	object := func(resource *storage.Resource, namespace, name string) plainObject {
		return plainObject{storage.Deletion{Resource: resource, Namespace: namespace, Name: name}, ""}
	}
	var got []string
	for _, object := range inRounds([]plainObject{
		object(maps, "a", "1"), object(maps, "a", "2"), object(maps, "c", "1"), object(accounts, "a", "1"), object(accounts, "c", "1"), object(accounts, "c", "2"),
	}, []plainObject{object(namespaces, "", "a"), object(namespaces, "", "b"), object(namespaces, "", "c")}) {
		got = append(got, object.Resource.Prefix+"/"+object.Namespace+"/"+object.Name)
	}
	want := []string{
		"maps/a/1", "accounts/a/1",
		"maps/a/2", "accounts/c/1",
		"namespaces//a", "maps/c/1", "accounts/c/2",
		"namespaces//b",
		"namespaces//c",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
