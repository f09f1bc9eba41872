package security_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// lifecycleVirtualWorkspacePath returns the path of a virtual workspace of a workspace type in a.
func (e *env) lifecycleVirtualWorkspacePath(kind, workspaceType, cluster string) string {
	return "/services/" + kind + "/" + e.a + ":" + workspaceType + "/clusters/" + cluster
}

// createInitializingWorkspace creates a workspace in a whose type has an initializer, and returns its logical cluster.
func (e *env) createInitializingWorkspace(t *testing.T, name, spec string) string {
	t.Helper()
	e.createObject(t, typesPath, `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"WorkspaceType","metadata":{"name":"`+name+`"},"spec":{"initializer":true`+spec+`}}`)
	e.createObject(t, workspacesPath, `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"`+name+`"},"spec":{`+e.remoteLocation()+`,"type":{"name":"`+name+`","path":"root:a"}}}`)
	var cluster string
	shardtesting.Eventually(t, name+" waits for its initializer", func(context.Context) error {
		got := e.do(t, e.adminA, e.a, request{path: workspacesPath + "/" + name}).object(t)
		status, _ := got["status"].(map[string]any)
		cluster, _ = got["spec"].(map[string]any)["cluster"].(string)
		if status["phase"] != "Initializing" {
			return fmt.Errorf("status %v", status)
		}
		if answer := e.sendToShard(t, e.adminA, request{path: e.lifecycleVirtualWorkspacePath("initializingworkspaces", name, cluster) + "/api/v1/namespaces"}); answer.status != http.StatusOK {
			return fmt.Errorf("%d %s", answer.status, answer.body)
		}
		return nil
	})
	return cluster
}

// testVirtualWorkspaces sends requests to the virtual workspaces of types of a, with the permissions of the type and
// with those of the creator.
func testVirtualWorkspaces(t *testing.T, s *env) {
	everything := `[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]},{"nonResourceURLs":["*"],"verbs":["*"]}]`
	for name, spec := range map[string]string{"type-permissions": `,"initializerPermissions":` + everything, "creator-permissions": ""} {
		cluster := s.createInitializingWorkspace(t, name, spec)
		in := s.lifecycleVirtualWorkspacePath("initializingworkspaces", name, cluster)
		for _, path := range []string{
			"/metrics", "/metrics/", "/metrics/slis", "//metrics", "/./metrics", "/debug/pprof/", "/debug/pprof/heap", "/debug/flags/v", "/logs/", "/configz", "/statusz", "/flagz",
			"/clusters/" + s.b + confidentialPath, "/../../clusters/" + s.b + confidentialPath, "/services/initializingworkspaces/root:universal/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters",
		} {
			for _, base := range s.serverURLs() {
				got := s.send(t, s.adminA, base, request{path: in + path})
				if got.status == http.StatusOK || strings.Contains(got.body, confidentialData) || strings.Contains(got.body, "go_goroutines") {
					t.Errorf("%s: %s: %d %.200s", name, path, got.status, got.body)
				}
			}
		}
	}
}

// testVirtualWorkspaceEnd opens watches in a workspace that is initialized by an initializer of a, and completes the
// initialization.
func testVirtualWorkspaceEnd(t *testing.T, s *env) {
	for name, spec := range map[string]string{"ending-type": `,"initializerPermissions":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]`, "ending-creator": ""} {
		t.Run(name, func(t *testing.T) {
			cluster := s.createInitializingWorkspace(t, name, spec)
			in := s.lifecycleVirtualWorkspacePath("initializingworkspaces", name, cluster)
			watch := make(chan httpResponse, 1)
			go func() {
				watch <- s.sendToShard(t, s.adminA, request{path: in + "/api/v1/configmaps?watch=1&timeoutSeconds=5&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"})
			}()
			time.Sleep(300 * time.Millisecond)
			own := in + "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
			status := s.sendToShard(t, s.adminA, request{path: own}).object(t)["status"].(map[string]any)
			var left []string
			for _, one := range status["initializers"].([]any) {
				if one != s.a+":"+name {
					left = append(left, fmt.Sprintf("%q", one))
				}
			}
			if got := s.sendToShard(t, s.adminA, request{method: http.MethodPatch, path: own + "/status", contentType: mergePatchType, body: `{"status":{"initializers":[` + strings.Join(left, ",") + `]}}`}); got.status != http.StatusOK {
				t.Fatalf("%d %s", got.status, got.body)
			}
			s.waitReady(t, s.a, name)
			secret := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"later"},"data":{"content":"` + confidentialData + `"}}`
			s.do(t, s.masters, cluster, request{method: http.MethodPost, path: "/api/v1/namespaces", body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"default"}}`})
			if got := s.do(t, s.masters, cluster, request{method: http.MethodPost, path: configMapsPath, body: secret}); got.status != http.StatusCreated {
				t.Fatalf("%d %s", got.status, got.body)
			}
			if got := <-watch; strings.Contains(got.body, confidentialData) {
				t.Errorf("a watch continues after the initialization: %.600s", got.body)
			}
			for _, path := range []string{configMapsPath, "/api/v1/secrets", "/api", "/apis", "/openapi/v3", "/version", "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"} {
				if got := s.sendToShard(t, s.adminA, request{path: in + path}); got.status < 400 || got.status >= 500 {
					t.Errorf("after the initialization %s: %d %.300s", path, got.status, got.body)
				}
			}
		})
	}
}

// testForeignVirtualWorkspaces sends requests to virtual workspaces of other tenants, and writes, through those of a,
// fields that their users may not write.
func testForeignVirtualWorkspaces(t *testing.T, s *env) {
	cluster := s.createInitializingWorkspace(t, "initializing", "")
	const clusters = "/apis/core.kcp.io/v1alpha1/logicalclusters"
	own := s.lifecycleVirtualWorkspacePath("initializingworkspaces", "initializing", cluster)
	for _, path := range []string{
		"/services/initializingworkspaces/" + s.b + ":private/clusters/*" + clusters, "/services/initializingworkspaces/root:universal/clusters/*" + clusters, "/services/initializingworkspaces/root:universal/clusters/" + cluster + clusters + "/cluster",
		"/services/initializingworkspaces/system:apibindings/clusters/*" + clusters, "/services/initializingworkspaces/system:apibindings/clusters/" + cluster + "/api", "/services/terminatingworkspaces/" + s.b + ":private/clusters/*" + clusters,
		"/services/initializingworkspaces/" + s.a + ":initializing/clusters/" + s.b + confidentialPath, "/services/initializingworkspaces/" + s.a + ":initializing/clusters/" + s.b + clusters + "/cluster", "/services/initializingworkspaces/" + s.a + ":initializing/clusters/" + s.a + "/api/v1/secrets",
		"/services/initializingworkspaces/" + s.a + ":initializing/clusters/root/api/v1/secrets", "/services/initializingworkspaces/" + s.a + ":initializing/clusters/*/api/v1/secrets", "/services/initializingworkspaces/" + s.a + ":initializing/clusters/*" + confidentialPath, "/services/initializingworkspaces/" + s.a + ":initializing/clusters/system:admin/api",
		"/services/initializingworkspaces/" + s.a + ":initializing%2fclusters%2f" + s.b + "/clusters/" + cluster + "/api", "/services/initializingworkspaces/" + s.a + ":initializing/clusters/" + cluster + "/../" + s.b + confidentialPath, "/services/initializingworkspaces/" + s.a + ":initializing/clusters/" + cluster + "%2f..%2f" + s.b + confidentialPath,
		"/services/initializingworkspaces/" + s.a + ":initializing/clusters/root:b" + confidentialPath, "/services/initializingworkspaces//clusters/*" + clusters, "/services/initializingworkspaces/*/clusters/*" + clusters, "/services/initializingworkspaces/:/clusters/*" + clusters, "/services/", "/services/initializingworkspaces", "/services/apiexport/" + s.b + "/x/clusters/*" + clusters,
		"/services/terminatingworkspaces/" + s.a + ":initializing/clusters/" + cluster + "/api/v1/namespaces", "/services/terminatingworkspaces/" + s.a + ":initializing/clusters/" + cluster + clusters + "/cluster", "/clusters/" + s.a + own + "/api",
	} {
		for _, caller := range []*testUser{s.adminA, s.serviceAccount, s.unrelatedUser, s.anonymous} {
			for _, base := range s.serverURLs() {
				got := s.send(t, caller, base, request{path: path})
				if (got.status == http.StatusOK || got.status >= 500) && !strings.Contains(got.body, "does not exist") || strings.Contains(got.body, confidentialData) {
					t.Errorf("%s, %s: %d %.300s", caller.name, path, got.status, got.body)
				}
			}
		}
	}
	for _, query := range []string{"", "?limit=500", "?resourceVersion=0", "?labelSelector=tenancy.kcp.io/phase=Ready", "?labelSelector=a!=b", "?fieldSelector=metadata.name=cluster", "?watch=1&timeoutSeconds=1&resourceVersion=1", "?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"} {
		for _, at := range []string{"*", cluster, s.b, s.a} {
			got := s.sendToShard(t, s.adminA, request{path: s.lifecycleVirtualWorkspacePath("initializingworkspaces", "initializing", at) + clusters + query})
			for _, other := range []string{s.b, s.a, "root"} {
				if strings.Contains(got.body, `"kcp.io/cluster":"`+other+`"`) {
					t.Errorf("%s%s shows the logical cluster %s: %.300s", at, query, other, got.body)
				}
			}
		}
	}
	for _, caller := range []*testUser{s.unrelatedUser, s.anonymous, s.adminB} {
		for _, path := range []string{own + clusters, own + "/api", s.lifecycleVirtualWorkspacePath("initializingworkspaces", "initializing", "*") + clusters} {
			if got := s.sendToShard(t, caller, request{path: path}); got.status != http.StatusForbidden && got.status != http.StatusUnauthorized {
				t.Errorf("%s, %s: %d %.300s", caller.name, path, got.status, got.body)
			}
		}
	}
	for _, h := range []http.Header{{"Impersonate-User": {"bob"}}, {"Impersonate-User": {"x"}, "Impersonate-Group": {"system:masters"}}} {
		for _, path := range []string{own + "/api/v1/namespaces", own + clusters} {
			if got := s.sendToShard(t, s.adminA, request{path: path, header: h}); got.status < 400 {
				t.Errorf("as %v, %s: %d %.300s", h, path, got.status, got.body)
			}
		}
	}
	object := own + clusters + "/cluster"
	before := s.sendToShard(t, s.adminA, request{path: object})
	for _, patch := range []string{
		`{"status":{"phase":"Ready"}}`, `{"status":{"phase":"Ready","initializers":[]}}`, `{"status":{"initializers":["` + s.b + `:private"]}}`, `{"status":{"initializers":["` + s.a + `:initializing","root:universal"]}}`, `{"status":{"URL":"https://evil.example"}}`, `{"status":{"terminators":["x:y"]}}`,
		`{"metadata":{"labels":{"tenancy.kcp.io/phase":"Ready"}},"spec":{"createdBy":{"username":"x","groups":["system:masters"]}}}`, `{"metadata":{"annotations":{"kcp.io/cluster":"` + s.b + `","kcp.io/path":"root:b"},"finalizers":[],"deletionTimestamp":"2020-01-01T00:00:00Z"}}`, `{"spec":{"directlyDeletable":true,"owner":null}}`,
	} {
		for _, path := range []string{object, object + "/status"} {
			s.sendToShard(t, s.adminA, request{method: http.MethodPatch, path: path, body: patch, contentType: mergePatchType})
		}
	}
	s.sendToShard(t, s.adminA, request{method: http.MethodDelete, path: object})
	s.sendToShard(t, s.adminA, request{method: http.MethodDelete, path: own + clusters})
	after := s.sendToShard(t, s.adminA, request{path: object})
	for _, field := range []string{"spec", "status"} {
		if was, is := before.object(t)[field], after.object(t)[field]; fmt.Sprint(was) != fmt.Sprint(is) {
			t.Errorf("%s was %v and is %v", field, was, is)
		}
	}
	if is := after.object(t)["metadata"].(map[string]any); is["deletionTimestamp"] != nil || !strings.Contains(fmt.Sprint(is["annotations"]), "kcp.io/cluster:"+cluster) || strings.Contains(fmt.Sprint(is["annotations"]), "root:b ") {
		t.Errorf("metadata is %v", is)
	}
}
