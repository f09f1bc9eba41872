package tenancy

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/content"
)

func TestWhichDeletionsAreNotWorthTelling(t *testing.T) {
	remaining := func(age time.Duration, finalizers ...string) *content.Remains {
		left := content.NewRemains()
		left.Count(schema.GroupResource{Resource: "namespaces"}, finalizers, time.Now().Add(-age))
		return left
	}
	for sentence, tc := range map[string]struct {
		change func(*corev1alpha1.LogicalCluster)
		left   *content.Remains
		behind time.Duration
		want   bool
	}{
		"what has just begun to go is soon gone": {left: remaining(0), want: true},
		"what goes for long is worth telling":    {left: remaining(time.Minute)},
		"or since a time that is yet to come":    {left: remaining(-time.Minute)},
		"but not while deletions are behind":     {left: remaining(time.Minute), behind: time.Minute, want: true},
		"whatever finalizers it has":             {left: remaining(0, "example.com/one"), want: true},
		"and what is told already is brought up to date": {left: remaining(0), change: func(c *corev1alpha1.LogicalCluster) {
			conditionsv1alpha1.MarkTrue(c, corev1alpha1.WorkspaceContentDeleted)
		}},
		"whose terminators wait has all the time to tell": {left: remaining(0), change: func(c *corev1alpha1.LogicalCluster) {
			c.Status.Terminators = []corev1alpha1.LogicalClusterTerminator{"a"}
		}},
	} {
		cluster := &corev1alpha1.LogicalCluster{}
		if tc.change != nil {
			tc.change(cluster)
		}
		if got := soonGone(cluster, tc.left, time.Now(), tc.behind); got != tc.want {
			t.Errorf("%s: got %v", sentence, got)
		}
	}
}

func TestManyDeletionsTogetherLookAsSeldomAsFewDo(t *testing.T) {
	now := time.Now()
	l := newLooks()
	for i := range looksAtOnce {
		if behind := l.behind(now); behind != 0 {
			t.Fatalf("look %d of a few waits for %s", i, behind)
		}
	}
	var last time.Duration
	for i := 1; i <= 10_000; i++ {
		behind := l.behind(now)
		if behind < last || behind > looksBehind {
			t.Fatalf("look %d of many waits for %s, the one before for %s", i, behind, last)
		}
		last = behind
	}
	if last != looksBehind {
		t.Errorf("the last of many waits for %s", last)
	}
	if behind := l.behind(now.Add(2 * looksBehind)); behind != 0 {
		t.Errorf("when nobody has looked for long one waits for %s", behind)
	}
}
