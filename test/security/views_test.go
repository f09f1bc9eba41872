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

// view is the path of a virtual workspace of a type in a.
func (s *site) view(kind, workspaceType, cluster string) string {
	return "/services/" + kind + "/" + s.a + ":" + workspaceType + "/clusters/" + cluster
}

// waiting makes a workspace in a whose type has an initializer, and returns the name of its logical cluster.
func (s *site) waiting(t *testing.T, name, spec string) string {
	t.Helper()
	s.make(t, typesPath, `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"WorkspaceType","metadata":{"name":"`+name+`"},"spec":{"initializer":true`+spec+`}}`)
	s.make(t, workspacesPath, `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"`+name+`"},"spec":{"type":{"name":"`+name+`","path":"root:a"}}}`)
	var cluster string
	shardtesting.Eventually(t, name+" waits for its initializer", func(context.Context) error {
		got := s.do(t, s.admin, s.a, request{path: workspacesPath + "/" + name}).object(t)
		status, _ := got["status"].(map[string]any)
		cluster, _ = got["spec"].(map[string]any)["cluster"].(string)
		if status["phase"] != "Initializing" {
			return fmt.Errorf("status %v", status)
		}
		if answer := s.try(t, s.admin, s.shard, request{path: s.view("initializingworkspaces", name, cluster) + "/api/v1/namespaces"}); answer.status != http.StatusOK {
			return fmt.Errorf("%d %s", answer.status, answer.body)
		}
		return nil
	})
	return cluster
}

// views looks out of the virtual workspaces of own workspace types, as whom the type permits and as the creator.
func views(t *testing.T, s *site) {
	everything := `[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]},{"nonResourceURLs":["*"],"verbs":["*"]}]`
	for name, spec := range map[string]string{"prepared": `,"initializerPermissions":` + everything, "handed": ""} {
		cluster := s.waiting(t, name, spec)
		in := s.view("initializingworkspaces", name, cluster)
		for _, path := range []string{
			"/metrics", "/metrics/", "/metrics/slis", "//metrics", "/./metrics", "/debug/pprof/", "/debug/pprof/heap", "/debug/flags/v", "/logs/", "/configz", "/statusz", "/flagz",
			"/clusters/" + s.b + treasurePath, "/../../clusters/" + s.b + treasurePath, "/services/initializingworkspaces/root:universal/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters",
		} {
			for _, base := range []string{s.shard, s.proxy} {
				got := s.try(t, s.admin, base, request{path: in + path})
				if got.status == http.StatusOK || strings.Contains(got.body, treasure) || strings.Contains(got.body, "go_goroutines") {
					t.Errorf("%s: %s: %d %.200s", name, path, got.status, got.body)
				}
			}
		}
	}
}

// viewsEnd opens watches of the content of a workspace while it waits for an initializer of a, and lets it become ready.
func viewsEnd(t *testing.T, s *site) {
	for name, spec := range map[string]string{"lasting": `,"initializerPermissions":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]`, "handing": ""} {
		t.Run(name, func(t *testing.T) {
			cluster := s.waiting(t, name, spec)
			in := s.view("initializingworkspaces", name, cluster)
			watch := make(chan answer, 1)
			go func() {
				watch <- s.try(t, s.admin, s.shard, request{path: in + "/api/v1/configmaps?watch=1&timeoutSeconds=5&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"})
			}()
			time.Sleep(300 * time.Millisecond)
			own := in + "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
			status := s.try(t, s.admin, s.shard, request{path: own}).object(t)["status"].(map[string]any)
			var left []string
			for _, one := range status["initializers"].([]any) {
				if one != s.a+":"+name {
					left = append(left, fmt.Sprintf("%q", one))
				}
			}
			if got := s.try(t, s.admin, s.shard, request{method: http.MethodPatch, path: own + "/status", contentType: mergePatchType, body: `{"status":{"initializers":[` + strings.Join(left, ",") + `]}}`}); got.status != http.StatusOK {
				t.Fatalf("%d %s", got.status, got.body)
			}
			s.waitReady(t, s.a, name)
			secret := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"later"},"data":{"content":"` + treasure + `"}}`
			s.do(t, s.masters, cluster, request{method: http.MethodPost, path: "/api/v1/namespaces", body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"default"}}`})
			if got := s.do(t, s.masters, cluster, request{method: http.MethodPost, path: configMapsOfNS, body: secret}); got.status != http.StatusCreated {
				t.Fatalf("%d %s", got.status, got.body)
			}
			if got := <-watch; strings.Contains(got.body, treasure) {
				t.Errorf("a watch goes on after the initialization: %.600s", got.body)
			}
			for _, path := range []string{configMapsOfNS, "/api/v1/secrets", "/api", "/apis", "/openapi/v3", "/version", "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"} {
				if got := s.try(t, s.admin, s.shard, request{path: in + path}); got.status < 400 || got.status >= 500 {
					t.Errorf("after the initialization %s: %d %.300s", path, got.status, got.body)
				}
			}
		})
	}
}
