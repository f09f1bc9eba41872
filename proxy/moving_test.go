package proxy_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// TestReadsOfMovingCluster: the shard of a logical cluster has handed it over. Reads wait for the one that takes over, writes do not.
func TestReadsOfMovingCluster(t *testing.T) {
	i := newEnv(t)
	client := i.clientFor("alice")
	do := func(ctx context.Context, method, body string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, method, i.url+"/clusters/root:org:team/api", strings.NewReader(body))
		must(t, err)
		res, err := client.Do(req)
		must(t, err)
		defer res.Body.Close()
		content, err := io.ReadAll(res.Body)
		must(t, err)
		return res, string(content)
	}
	if res, _ := do(t.Context(), http.MethodGet, ""); res.StatusCode != http.StatusOK {
		t.Fatal(res.Status)
	}
	i.alpha.moving.Store(true)
	if res, content := do(t.Context(), http.MethodPost, "{}"); res.StatusCode != http.StatusServiceUnavailable || i.alpha.refused.Load() != 1 || res.Header.Get(logicalcluster.MovingHeader) != "" {
		t.Errorf("a write gets %s %v after %d attempts: %s", res.Status, res.Header, i.alpha.refused.Load(), content)
	}

	start := time.Now()
	res, content := do(t.Context(), http.MethodGet, "")
	if took := time.Since(start); res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "1" || res.Header.Get(logicalcluster.MovingHeader) != "" || !strings.Contains(content, "is being migrated") || took < 2*time.Second {
		t.Errorf("a read that nobody serves gets %s after %s: %s", res.Status, took, content)
	}
	if attempts := i.alpha.refused.Load(); attempts < 5 || attempts > 20 {
		t.Errorf("%d attempts", attempts)
	}

	gone, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(gone, http.MethodGet, i.url+"/clusters/root:org:team/api", nil)
	must(t, err)
	if res, err := client.Do(req); err == nil {
		res.Body.Close()
		t.Errorf("a client that has gone gets %s", res.Status)
	}

	before := i.alpha.refused.Load()
	answer := make(chan received, 1)
	go func() {
		var got received
		if res, content := do(t.Context(), http.MethodGet, ""); res.StatusCode == http.StatusOK {
			_ = json.Unmarshal([]byte(content), &got)
		}
		answer <- got
	}()
	i.eventually("the read at the origin", func() bool { return i.alpha.refused.Load() > before })
	i.root.putCluster("team1")
	i.alpha.put("logicalclusters", "team1", "cluster", map[string]any{"metadata": map[string]any{"name": "cluster", "resourceVersion": "1000",
		"annotations": map[string]string{logicalcluster.AnnotationKey: "team1", corev1alpha1.MovedToAnnotationKey: "root"}}})
	if got := <-answer; got.Backend != "root" || got.Path != "/clusters/team1/api" {
		t.Errorf("the read is answered by %q at %q", got.Backend, got.Path)
	}
}

// TestReadsBeforeDestinationIsKnown: the Workspace names another shard before this proxy has the logical cluster from that. Reads
// wait for it, other requests do not.
func TestReadsBeforeDestinationIsKnown(t *testing.T) {
	i := newEnv(t)
	client := i.clientFor("alice")
	get := func(client *http.Client) (int, string) {
		res, err := client.Get(i.url + "/clusters/root:org:team/api")
		must(t, err)
		defer res.Body.Close()
		content, err := io.ReadAll(res.Body)
		must(t, err)
		return res.StatusCode, string(content)
	}
	i.root.put("workspaces", "org1", "team", map[string]any{"spec": map[string]any{"cluster": "team1"}, "status": map[string]any{"phase": "Ready"},
		"metadata": map[string]any{"name": "team", "resourceVersion": "1000", "annotations": map[string]string{
			logicalcluster.AnnotationKey: "org1", corev1alpha1.ShardAnnotationKey: "root"}}})
	i.eventually("the change of the Workspace", func() bool {
		res, err := client.Post(i.url+"/clusters/root:org:team/api", "application/json", strings.NewReader("{}"))
		must(t, err)
		res.Body.Close()
		return res.StatusCode == http.StatusServiceUnavailable
	})

	start := time.Now()
	if status, content := get(client); status != http.StatusServiceUnavailable || time.Since(start) < 2*time.Second {
		t.Errorf("a read of which nobody knows the shard gets %d after %s: %s", status, time.Since(start), content)
	}
	answer := make(chan string, 1)
	go func() { _, content := get(client); answer <- content }()
	i.root.putCluster("team1")
	var got received
	if content := <-answer; json.Unmarshal([]byte(content), &got) != nil || got.Backend != "root" || got.Path != "/clusters/team1/api" {
		t.Errorf("the read gets %s", content)
	}
}

// TestOthersDoNotMove: what is no shard cannot have reads repeated, and the header by which shards ask for that reaches no client.
func TestOthersDoNotMove(t *testing.T) {
	i := newEnv(t)
	i.services.moving.Store(true)
	for name, path := range map[string]string{"a mount": "/clusters/root:org:mount/api", "virtual workspaces": "/services/thing/clusters/team1/api", "another entry of the mapping file": "/e/org1/x/y"} {
		before := i.services.refused.Load()
		res, err := i.clientFor("alice").Get(i.url + path)
		must(t, err)
		res.Body.Close()
		if attempts := i.services.refused.Load() - before; res.StatusCode != http.StatusServiceUnavailable || attempts != 1 || res.Header.Get(logicalcluster.MovingHeader) != "" {
			t.Errorf("%s: %s %v after %d attempts", name, res.Status, res.Header, attempts)
		}
	}
}
