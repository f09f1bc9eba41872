package security_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testVirtualWorkspacesPerShard requests the virtual workspace of the export of p at every shard: it serves consumers
// on that shard, by name and with the wildcard. Consumers on other shards look like logical clusters that do not exist.
func (s *sharingEnv) testVirtualWorkspacesPerShard(t *testing.T) {
	for _, name := range s.layout.Shards() {
		base := s.layout.URL(name)
		for _, path := range []string{widgets, allWidgets, widgets + "/confidential", secrets + "/shared", "/api/v1/secrets", bindingsPath, "/api", "/apis", "/openapi/v3", allWidgets + "?watch=1&timeoutSeconds=1", "/api/v1/configmaps"} {
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
				none := s.send(t, s.paula, base, request{method: method, path: s.virtualWorkspace("widgets", unknownCluster) + path, body: "{}"})
				if documents := path == "/apis" || path == "/api" || path == "/openapi/v3"; !documents && none.status < 400 || none.status >= 500 {
					t.Errorf("%s %s of an unknown cluster at %s: %d %.300s", method, path, name, none.status, none.body)
				}
				for _, cluster := range []string{s.a, s.b, s.c, s.p} {
					if s.resolveShardURL(t, cluster) == base && cluster != s.c && cluster != s.p {
						continue // this shard has it
					}
					got := s.send(t, s.paula, base, request{method: method, path: s.virtualWorkspace("widgets", cluster) + path, body: "{}"})
					if got.status != none.status || strings.ReplaceAll(got.body, cluster, unknownCluster) != none.body {
						t.Errorf("%s %s of %s at %s: %d %.300s\nof an unknown cluster: %d %.300s", method, path, cluster, name, got.status, got.body, none.status, none.body)
					}
				}
				for _, caller := range []*testUser{s.unrelatedUser, s.anonymous, s.adminA, s.adminB} {
					for _, cluster := range []string{"*", s.a, s.b, unknownCluster} {
						got := s.send(t, caller, base, request{method: method, path: s.virtualWorkspace("widgets", cluster) + path, body: "{}"})
						if got.status != http.StatusForbidden && got.status != http.StatusUnauthorized && got.status != http.StatusNotFound {
							t.Errorf("%s: %s %s of %s at %s: %d %.300s", caller.name, method, path, cluster, name, got.status, got.body)
						}
					}
				}
			}
		}
		for _, path := range []string{allWidgets, bindingsPath} {
			for _, query := range []string{"", "?limit=500", "?resourceVersion=0", "?watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"} {
				got := s.send(t, s.paula, base, request{path: s.virtualWorkspace("widgets", "*") + path + query})
				for _, cluster := range []string{s.a, s.b, s.c} {
					here := s.resolveShardURL(t, cluster) == base && cluster != s.c
					if got.status != http.StatusOK || strings.Contains(got.body, `"kcp.io/cluster":"`+cluster+`"`) != here {
						t.Errorf("%s%s at %s, which has %s: %t: %d %.400s", path, query, name, cluster, here, got.status, got.body)
					}
				}
			}
		}
	}
}

// testCachedResources has p publish one of its flavors to consumers through a ClusterCachedResource, and requests all
// other objects through the replication virtual workspace, at every shard and as every user.
func (s *sharingEnv) testCachedResources(t *testing.T) {
	const cachedResourcesPath, slices = "/apis/cache.kcp.io/v1alpha1/clustercachedresources", "/apis/cache.kcp.io/v1alpha1/clustercachedresourceendpointslices"
	const flavors = "/apis/flavors.example.com/v1/flavors"
	must := func(path, body string) {
		t.Helper()
		if got := s.do(t, s.paula, s.p, request{method: http.MethodPost, path: path, body: body}); got.status != http.StatusCreated {
			t.Fatalf("%s: %d %s", path, got.status, got.body)
		}
	}
	must(definitionsPath, definitionJSON("flavors.example.com", "flavors", "Flavor", "Cluster", "v1", ""))
	s.waitForStatus(t, s.paula, s.p, flavors, http.StatusOK)
	must(flavors, `{"apiVersion":"flavors.example.com/v1","kind":"Flavor","metadata":{"name":"published","labels":{"published":"yes"}}}`)
	must(flavors, `{"apiVersion":"flavors.example.com/v1","kind":"Flavor","metadata":{"name":"withheld"},"spec":{"content":"`+confidentialData+`"}}`)
	must(cachedResourcesPath, `{"apiVersion":"cache.kcp.io/v1alpha1","kind":"ClusterCachedResource","metadata":{"name":"flavors"},"spec":{"group":"flavors.example.com","version":"v1","resource":"flavors","labelSelector":{"matchLabels":{"published":"yes"}}}}`)
	must(slices, `{"apiVersion":"cache.kcp.io/v1alpha1","kind":"ClusterCachedResourceEndpointSlice","metadata":{"name":"flavors"},"spec":{"clusterCachedResource":{"name":"flavors"},"export":{"name":"flavors"}}}`)
	var identity string
	shardtesting.Eventually(t, "the ClusterCachedResource has an identity", func(context.Context) error {
		status, _ := s.do(t, s.paula, s.p, request{path: cachedResourcesPath + "/flavors"}).object(t)["status"].(map[string]any)
		if identity, _ = status["identityHash"].(string); identity == "" || status["phase"] != string(cachev1alpha1.ClusterCachedResourcePhaseReady) {
			return fmt.Errorf("%v", status)
		}
		return nil
	})
	must(schemasPath, strings.Replace(apiSchemaJSON("v1", "flavors.example.com", "flavors", "Flavor"), `"scope":"Namespaced"`, `"scope":"Cluster"`, 1))
	must(exportsPath, exportJSON("flavors", `"resources":[{"group":"flavors.example.com","name":"flavors","schema":"v1.flavors.flavors.example.com","storage":{"virtual":{"reference":{"apiGroup":"cache.kcp.io","kind":"ClusterCachedResourceEndpointSlice","name":"flavors"},"identityHash":"`+identity+`"}}}]`))
	s.Bind(t, s.b, s.p, "flavors")
	verbs := []request{{}, {method: http.MethodDelete}, {method: http.MethodPatch, body: "{}", contentType: mergePatchType}}
	for _, base := range s.workspaceServerURLs() {
		for _, owner := range []string{s.p + "/flavors", s.p + "/none", s.b + "/flavors", "*/flavors", unknownCluster + "/flavors", s.p + "/..", s.p} {
			for _, cluster := range []string{s.a, s.b, s.p, "*", unknownCluster, "system:admin"} {
				for _, path := range []string{flavors, flavors + "/published", flavors + "/withheld", flavors + ":" + identity, confidentialPath, "/api/v1/secrets", "/metrics"} {
					in := "/services/replication/" + owner + "/clusters/" + cluster + path
					for _, r := range verbs {
						r.path = in
						for _, caller := range []*testUser{s.paula, s.unrelatedUser, s.adminB} {
							got := s.send(t, caller, base, r)
							permitted := caller == s.paula && r.method == "" && owner == s.p+"/flavors" && (cluster == s.b || cluster == "*") && strings.HasPrefix(path, flavors)
							if strings.Contains(got.body, confidentialData) || strings.Contains(got.body, "withheld") && got.status < 300 || !permitted && got.status < 400 && got.status != http.StatusTemporaryRedirect {
								t.Errorf("%s: %s %s at the %s: %d %.300s", caller.name, r.method, in, s.serverName(base), got.status, got.body)
							}
						}
					}
				}
			}
		}
	}
	for _, cluster := range []string{s.a, s.c} {
		for _, path := range []string{flavors, flavors + "/published", flavors + ":" + identity, flavors + ":" + identity + "/published"} {
			if got := s.do(t, s.masters, cluster, request{path: path}); strings.Contains(got.body, "published") && got.status < 400 || strings.Contains(got.body, confidentialData) {
				t.Errorf("%s of %s: %d %.300s", path, cluster, got.status, got.body)
			}
		}
	}
	if got := s.do(t, s.adminB, s.b, request{path: flavors}); strings.Contains(got.body, "withheld") || strings.Contains(got.body, confidentialData) {
		t.Errorf("b gets %d %.300s", got.status, got.body)
	}
}
