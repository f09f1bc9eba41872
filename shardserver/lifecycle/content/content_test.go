package content

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRemainingString(t *testing.T) {
	left := NewRemaining()
	left.Count(namespaces, nil, time.Time{})
	left.Count(schema.GroupResource{Group: "tenancy.kcp.io", Resource: "workspaces"}, []string{"b", "a"}, time.Time{})
	left.Count(namespaces, []string{"a"}, time.Time{})
	want := "Some resources are remaining: namespaces has 2 resource instances, workspaces.tenancy.kcp.io has 1 resource instances; " +
		"Some content in the logical cluster has finalizers remaining: a in 2 resource instances, b in 1 resource instances"
	if got := left.String(); got != want || left.Empty() {
		t.Errorf("got %q", got)
	}
}

func TestRemainingSince(t *testing.T) {
	left, now := NewRemaining(), time.Now()
	left.add(namespaces, &metav1.ObjectMeta{Name: "not yet"})
	if !left.Since().IsZero() {
		t.Errorf("got %s, but nothing is being deleted", left.Since())
	}
	for _, age := range []time.Duration{time.Second, time.Minute, 0} {
		left.add(namespaces, &metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: now.Add(-age)}})
	}
	if got := now.Sub(left.Since()); got != time.Minute {
		t.Errorf("got %s ago, want a minute ago", got)
	}
}
