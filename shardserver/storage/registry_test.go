package storage

import "testing"

func TestResourceSegment(t *testing.T) {
	for prefix, want := range map[string]string{
		"/core/configmaps":                    "",
		"/core.kcp.io/logicalclusters/custom": "custom",
		"tenancy.kcp.io/workspaces/0123/":     "0123",
		"":                                    "",
	} {
		if got := (&Resource{Prefix: prefix}).Segment(); got != want {
			t.Errorf("%q: got %q, want %q", prefix, got, want)
		}
	}
}
