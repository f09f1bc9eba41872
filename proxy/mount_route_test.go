package proxy_test

import (
	"net/http"
	"testing"
)

// TestMountLoop: a tenant can mount this proxy at the path of the mount.
func TestMountLoop(t *testing.T) {
	i := newEnv(t)
	alice := i.clientFor("alice")
	for name, tc := range map[string]struct {
		hops   string
		status int
		passed string
	}{
		"the first":                {"", http.StatusOK, "1"},
		"the second":               {"1", http.StatusOK, "2"},
		"the last":                 {"3", http.StatusOK, "4"},
		"more than the limit":      {"4", http.StatusLoopDetected, ""},
		"many more than the limit": {"1000", http.StatusLoopDetected, ""},
		"a negative number":        {"-1", http.StatusLoopDetected, ""},
		"no number":                {"x", http.StatusLoopDetected, ""},
	} {
		t.Run(name, func(t *testing.T) {
			header := http.Header{}
			if tc.hops != "" {
				header.Set("X-Atoll-Mount-Hops", tc.hops)
			}
			status, got, body := i.get(alice, "/clusters/root:org:mount/api", header)
			if status != tc.status || got.Header.Get("X-Atoll-Mount-Hops") != tc.passed {
				t.Errorf("status %d, passed on %q: %s", status, got.Header.Get("X-Atoll-Mount-Hops"), body)
			}
		})
	}
}
