package content

import "testing"

func TestRemainsReadTheSameForTheSameCounts(t *testing.T) {
	left := NewRemains()
	left.Add("namespaces", nil)
	left.Add("workspaces.tenancy.kcp.io", []string{"b", "a"})
	left.Add("namespaces", []string{"a"})
	want := "Some resources are remaining: namespaces has 2 resource instances, workspaces.tenancy.kcp.io has 1 resource instances; " +
		"Some content in the logical cluster has finalizers remaining: a in 2 resource instances, b in 1 resource instances"
	if got := left.String(); got != want || left.None() {
		t.Errorf("got %q", got)
	}
}
