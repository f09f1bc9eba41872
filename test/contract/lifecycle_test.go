package contract

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// lifecycleType is a workspace type with an initializer and a terminator of an external controller.
const lifecycleType = `{"metadata":{"name":"procedure"},"spec":{"initializer":true,"terminator":true,
	"initializerPermissions":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["create"]}],
	"extend":{"with":[{"name":"universal","path":"root"}]},"additionalWorkspaceLabels":{"made":"by-procedure"}}}`

// workspace holds the fields of a Workspace, or of its LogicalCluster, that the test reads.
type workspace struct {
	Metadata struct {
		Labels, Annotations map[string]string
		Finalizers          []string
	}
	Spec struct {
		Cluster, URL string
		Initializers []string
	}
	Status struct {
		Phase                     string
		Initializers, Terminators []string
	}
}

// TestLifecycle covers the flows of initializers and terminators (12.1, 12.3, 8.4), with controllers that connect
// through the front proxy, as they do where shards are not reachable from outside.
func TestLifecycle(t *testing.T) {
	s := newEnv(t)
	initializing, terminating := s.createLifecycleType(t)
	s.must(t, request{user: "alice", method: http.MethodPost, path: "/clusters/root:a" + workspaces, body: `{"metadata":{"name":"team"},"spec":{"type":{"name":"procedure"},"location":{"selector":{"matchLabels":{"name":"root"}}}}}`, proxy: true})
	got := s.waitForWorkspace(t, func(w workspace) bool {
		return slices.Equal(w.Status.Initializers, []string{s.names.Replace("{a}:procedure")})
	})
	if got.Status.Phase != "Initializing" || got.Metadata.Labels["made"] != "by-procedure" || got.Spec.URL != s.URL+"/clusters/root:a:team" || !slices.Equal(got.Metadata.Finalizers, []string{"core.kcp.io/logicalcluster"}) {
		t.Errorf("the initializing workspace is %+v", got)
	}
	team := "/clusters/" + got.Spec.Cluster
	var cluster workspace
	s.must(t, request{user: "masters", path: team + ownClusterPath}).decode(t, &cluster)
	if want := strings.Fields(s.names.Replace("root:universal {a}:procedure system:apibindings")); !slices.Equal(cluster.Spec.Initializers, want) {
		t.Errorf("initializers are %q, want %q", cluster.Spec.Initializers, want)
	}
	s.testInitialize(t, initializing, team)
	s.waitForWorkspace(t, func(w workspace) bool { return w.Status.Phase == "Ready" })
	s.testTerminate(t, terminating, team)
	s.testLostCluster(t)
}

// createLifecycleType creates the type and returns the paths of its two virtual workspaces, as its status publishes
// them: they are the same on every shard.
func (e *env) createLifecycleType(t *testing.T) (initializing, terminating string) {
	t.Helper()
	e.must(t, request{user: "alice", method: http.MethodPost, path: "/clusters/root:a" + types, body: lifecycleType, proxy: true})
	var kind struct {
		Status struct {
			VirtualWorkspaces []struct{ URL, Type string }
		}
	}
	shardtesting.Eventually(t, "the type has two virtual workspaces on each shard", func(context.Context) error {
		e.must(t, request{user: "alice", path: "/clusters/root:a" + types + "/procedure"}).decode(t, &kind)
		if len(kind.Status.VirtualWorkspaces) != 2*len(e.Shards()) {
			return fmt.Errorf("it has %+v", kind.Status.VirtualWorkspaces)
		}
		return nil
	})
	paths := map[string]string{}
	for _, published := range kind.Status.VirtualWorkspaces {
		at, err := url.Parse(published.URL)
		if err != nil {
			t.Fatal(err)
		}
		paths[published.Type] = at.Path
	}
	return paths["initializing"], paths["terminating"]
}

// waitForWorkspace waits until the workspace satisfies a predicate.
func (e *env) waitForWorkspace(t *testing.T, condition func(workspace) bool) (w workspace) {
	t.Helper()
	shardtesting.Eventually(t, "the workspace changes", func(context.Context) error {
		w = workspace{}
		e.must(t, request{user: "alice", path: "/clusters/root:a" + workspaces + "/team"}).decode(t, &w)
		if !condition(w) {
			return fmt.Errorf("it is %+v", w)
		}
		return nil
	})
	return w
}

func (e *env) testInitialize(t *testing.T, view, team string) {
	t.Helper()
	events := e.watch(t, view+"/clusters/*"+clusters+"?watch=true")
	if event := <-events; event != "ADDED" {
		t.Errorf("the first event of the watch is %s", event)
	}
	at := view + team
	for _, row := range []row{
		{"5.4", "watch by another user is Forbidden", "mallory", view + "/clusters/*" + clusters, "", 0, 403, ""},
		{"5.4", "get of an initializing workspace", "alice", at + ownClusterPath, "", 0, 200, ""},
		{"5.4", "get of another workspace", "alice", view + "/clusters/{b}" + ownClusterPath, "", 0, 404, ""},
		{"5.4", "content with permission", "alice", "POST " + at + configMaps, `{"metadata":{"name":"made"}}`, 0, 201, ""},
		{"5.4", "content without permission is Forbidden", "alice", at + secrets, "", 0, 403, ""},
		{"5.4", "content of another workspace is Forbidden", "alice", view + "/clusters/{b}" + configMaps, "", 0, 403, ""},
		{"5.4", "write of the spec is not allowed", "alice", "PATCH " + at + ownClusterPath, `{"spec":{"directlyDeletable":true}}`, 0, 405, ""},
		{"5.4", "added initializer", "alice", "PATCH " + at + ownClusterPath + "/status", `{"status":{"initializers":["{a}:procedure","root:other"]}}`, 0, 422, ""},
		{"12.3", "remove the initializer", "alice", "PATCH " + at + ownClusterPath + "/status", `{"status":{"initializers":[]}}`, 0, 200, ""},
	} {
		e.checkRow(t, row)
	}
	for timeout, event := time.After(time.Minute), ""; event != "DELETED"; {
		select {
		case next, open := <-events:
			if !open {
				t.Fatal("the watch ended")
			}
			event = next
		case <-timeout:
			t.Fatal("the watch does not deliver the deletion of the initialized workspace")
		}
	}
	e.checkRow(t, row{"12.3", "content after the initialization is Forbidden", "alice", at + configMaps, "", 0, 403, ""})
	e.checkRow(t, row{"12.3", "get after the initialization", "alice", at + ownClusterPath, "", 0, 404, ""})
}

func (e *env) testTerminate(t *testing.T, view, team string) {
	t.Helper()
	e.checkRow(t, row{"5.5", "get before the deletion", "alice", view + team + ownClusterPath, "", 0, 404, ""})
	e.must(t, request{user: "alice", method: http.MethodPost, path: team + configMaps, body: `{"metadata":{"name":"kept","finalizers":["example.com/keep"]}}`})
	e.must(t, request{user: "alice", method: http.MethodDelete, path: "/clusters/root:a" + workspaces + "/team", proxy: true})
	e.waitForStatus(t, request{user: "alice", path: view + team + ownClusterPath, proxy: true}, http.StatusOK)
	e.waitForWorkspace(t, func(w workspace) bool { return w.Status.Phase == "Terminating" })
	at := view + team
	for _, row := range []row{
		{"2.7", "tenants access a terminating workspace", "alice", team + namespaces, "", 0, 200, ""},
		{"5.5", "the terminator lists the content", "alice", at + configMaps, "", 0, 200, ""},
		{"7.4", "removal of the deletion finalizer is reverted", "admin", "PATCH " + team + ownClusterPath, `{"metadata":{"finalizers":["kcp.io/has-terminators"]}}`, 403, 403, "core.kcp.io/logicalcluster-deletion"},
		{"5.5", "added terminator", "alice", "PATCH " + at + ownClusterPath + "/status", `{"status":{"terminators":["{a}:procedure","root:other"]}}`, 0, 422, ""},
		{"5.5", "remove the terminator", "alice", "PATCH " + at + ownClusterPath + "/status", `{"status":{"terminators":[]}}`, 0, 200, ""},
	} {
		e.checkRow(t, row)
	}
	e.waitForWorkspace(t, func(w workspace) bool { return w.Status.Phase == "Deleting" })
	e.must(t, request{user: "alice", method: http.MethodPatch, path: team + configMaps + "/kept", body: `{"metadata":{"finalizers":null}}`})
	e.waitForStatus(t, request{user: "alice", path: "/clusters/root:a" + workspaces + "/team", proxy: true}, http.StatusNotFound)
	e.checkRow(t, row{"11", "deleted cluster is Forbidden", "alice", team + namespaces, "", 403, 0, ""})
	e.waitForStatus(t, request{user: "alice", path: team + namespaces, proxy: true}, http.StatusForbidden)
}

// testLostCluster deletes the logical cluster of a workspace on the same shard. The workspace of a logical cluster on
// another shard would record the loss and become Unavailable.
func (e *env) testLostCluster(t *testing.T) {
	t.Helper()
	const path = "/clusters/root:a:lost"
	e.must(t, request{user: "alice", method: http.MethodPost, path: "/clusters/root:a" + workspaces, body: `{"metadata":{"name":"lost"},"spec":{"location":{"selector":{"matchLabels":{"name":"alpha"}}}}}`})
	e.waitForStatus(t, request{user: "alice", path: path + namespaces}, http.StatusOK)
	e.must(t, request{user: "masters", method: http.MethodDelete, path: path + ownClusterPath})
	e.waitForStatus(t, request{user: "alice", path: path + namespaces}, http.StatusNotFound)
	e.waitForStatus(t, request{user: "alice", path: path + namespaces, proxy: true}, http.StatusForbidden)
}

// watch returns the event types of a watch through the proxy, which ends with the test.
func (e *env) watch(t *testing.T, path string) <-chan string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := *e.proxyClients["alice"]
	client.Timeout = 0
	response, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("watching %s: %s", path, response.Status)
	}
	events := make(chan string)
	go func() {
		defer close(events)
		defer response.Body.Close()
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			var event struct{ Type string }
			if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
				event.Type = fmt.Sprintf("no event: %.100s", lines.Bytes())
			}
			select {
			case events <- event.Type:
			case <-t.Context().Done():
				return
			}
		}
	}()
	return events
}
