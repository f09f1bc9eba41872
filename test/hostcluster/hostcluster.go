// Package hostcluster contains the common code of tests of an installation on a real cluster: polling, and an address for the front
// proxy.
package hostcluster

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Eventually polls until attempt returns nil. At the deadline it fails with attempt's last error, which therefore must describe what is
// missing.
func Eventually(t *testing.T, limit time.Duration, what string, attempt func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	started := time.Now()
	var shown string
	for {
		err := attempt(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			logNewLines(t, time.Since(started), what, shown, err.Error())
			shown = err.Error()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%s did not happen within %s: %s", what, limit, shown)
		}
	}
}

// logNewLines logs the lines of now that are not in before, each truncated to the width of a screen.
func logNewLines(t *testing.T, after time.Duration, what, before, now string) {
	t.Helper()
	seen := strings.Split(before, "\n")
	for line := range strings.SplitSeq(now, "\n") {
		if slices.Contains(seen, line) {
			continue
		}
		const maxLineLength = 180
		if len(line) > maxLineLength {
			line = line[:maxLineLength] + "..."
		}
		t.Logf("%4.1fs waiting for %s: %s", after.Seconds(), what, line)
	}
}

// givenServiceIPs are the addresses that FreeServiceIP has returned: their Services may not exist yet.
var givenServiceIPs sync.Map

// FreeServiceIP returns an address near kube, that of the API server's own Service. The first sixteen addresses of any range are
// reserved for static assignment: no other Service gets one of these by chance. Tests that run side by side get different addresses.
func FreeServiceIP(t *testing.T, host client.Client, kube string) string {
	t.Helper()
	services := &corev1.ServiceList{}
	if err := host.List(t.Context(), services); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, s := range services.Items {
		used[s.Spec.ClusterIP] = true
	}
	prefix := kube[:strings.LastIndex(kube, ".")+1]
	for last := 11; last < 16; last++ {
		ip := prefix + strconv.Itoa(last)
		if used[ip] {
			continue
		}
		if _, given := givenServiceIPs.LoadOrStore(ip, true); !given {
			return ip
		}
	}
	t.Fatalf("no address is free in %s11-15", prefix)
	return ""
}
