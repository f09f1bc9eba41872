package security_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

// testShardEndpoints requests, as the administrator of a workspace, endpoints that expose all tenants.
func testShardEndpoints(t *testing.T, s *env) {
	for _, path := range []string{
		"/metrics", "/metrics/", "/metrics/slis", "/%6detrics", "//metrics", "/%2fmetrics", "/./metrics", "/x/../metrics", "/metrics%2f", "/metrics%2fslis", "/metrics;x", "/metrics%00",
		"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof", "//debug/pprof/", "/%64ebug/pprof/", "/debug/flags/v", "/logs/", "/configz", "/statusz", "/flagz", "/healthz/etcd%00",
	} {
		for _, caller := range []*testUser{s.adminA, s.serviceAccount, s.unrelatedUser, s.anonymous} {
			for _, prefix := range []string{"/clusters/" + s.a, ""} {
				for _, base := range s.serverURLs() {
					got := s.send(t, caller, base, request{path: prefix + path})
					if prefix != "" && (caller == s.adminA || caller == s.serviceAccount) && isUsage(got) {
						continue // of their own workspace
					}
					if got.status == http.StatusOK || got.status >= 500 && got.status != http.StatusNotImplemented {
						t.Errorf("%s gets %s of the %s: %d %.300s", caller.name, prefix+path, s.serverName(base), got.status, got.body)
					}
				}
			}
		}
	}
	if got := s.send(t, s.adminA, s.proxyURL, request{path: "/metrics"}); got.status != http.StatusForbidden {
		t.Errorf("metrics of the proxy: %d %.300s", got.status, got.body)
	}
}

// isUsage reports whether a response is the usage of one workspace, which has no series of the process.
func isUsage(got httpResponse) bool {
	if got.status != http.StatusOK {
		return false
	}
	for line := range strings.Lines(got.body) {
		if !strings.HasPrefix(line, "# ") && !strings.HasPrefix(line, "atoll_usage_") || strings.Contains(line, "cluster=") {
			return false
		}
	}
	return true
}

// testListsAndWatches reads in workspace a with every parameter that could widen the result.
func testListsAndWatches(t *testing.T, s *env) {
	start := func(key string) string {
		return base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":-1,"start":"` + key + `"}`))
	}
	page := s.do(t, s.masters, s.b, request{path: "/api/v1/configmaps?limit=1"}).object(t)
	continueB := page["metadata"].(map[string]any)["continue"].(string)
	continueAll := s.do(t, s.masters, "*", request{path: "/api/v1/configmaps?limit=1"}).object(t)["metadata"].(map[string]any)["continue"].(string)
	version := s.do(t, s.adminB, s.b, request{path: confidentialPath}).object(t)["metadata"].(map[string]any)["resourceVersion"].(string)
	queries := []string{
		"", "?resourceVersion=0", "?limit=1000000", "?resourceVersion=" + version + "&resourceVersionMatch=Exact", "?resourceVersion=" + version + "&resourceVersionMatch=NotOlderThan",
		"?continue=" + continueB, "?continue=" + continueAll, "?limit=500&continue=" + start(s.b+`/default/`), "?limit=500&continue=" + start(`../`+s.b+`/default/`), "?limit=500&continue=" + start(`/`),
		"?limit=500&continue=" + start(``), "?limit=500&continue=" + start(`../../`), "?limit=500&continue=" + start(`a/../../`+s.b), "?limit=500&continue=" + start(`\u0000`),
		"?fieldSelector=kcp.io/cluster=" + s.b, "?fieldSelector=kcp.io/cluster!=" + s.a, "?labelSelector=kcp.io/cluster=" + s.b, "?fieldSelector=metadata.namespace=../" + s.b,
		"?fieldSelector=metadata.name=confidential", "?fieldSelector=metadata.name=confidential,metadata.namespace=default", "?fieldSelector=metadata.annotations=x",
		"?watch=1&timeoutSeconds=1", "?watch=1&timeoutSeconds=1&resourceVersion=0", "?watch=1&timeoutSeconds=1&resourceVersion=1", "?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=confidential",
		"?watch=1&timeoutSeconds=1&fieldSelector=kcp.io/cluster=" + s.b,
		"?watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", "?watch=1&timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion=" + version,
	}
	accepts := []string{jsonType, "application/json;as=Table;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "application/vnd.kubernetes.protobuf"}
	var reads errgroup.Group
	reads.SetLimit(64)
	defer func() { _ = reads.Wait() }()
	for _, resource := range []string{"/api/v1/configmaps", "/api/v1/secrets", configMapsPath, "/api/v1/events", "/api/v1/namespaces", workspacesPath, ownClusterPath[:len(ownClusterPath)-len("/cluster")], clusterBindings} {
		for i, query := range queries {
			for j, accept := range accepts {
				if i > 2 && j > 0 && !strings.Contains(query, "sendInitialEvents") {
					continue
				}
				reads.Go(func() error { // each watch takes a second
					got := s.do(t, s.adminA, s.a, request{path: resource + query, header: http.Header{"Accept": {accept}}})
					if strings.Contains(got.body, confidentialData) || strings.Contains(got.body, `"`+s.b+`"`) || got.status >= 500 && !strings.Contains(got.body, "invalid key") && !strings.Contains(got.body, "Too large resource version") {
						t.Errorf("%s%s as %s: %d %.500s", resource, query, accept, got.status, got.body)
					}
					return nil
				})
			}
		}
	}
	for _, cluster := range []string{"*", s.b} {
		for _, query := range queries[:4] {
			for _, caller := range []*testUser{s.adminA, s.serviceAccount, s.unrelatedUser, s.anonymous} {
				for _, base := range s.workspaceServerURLs() {
					if got := s.send(t, caller, base, request{path: "/clusters/" + cluster + "/api/v1/configmaps" + query}); got.status != http.StatusForbidden && got.status != http.StatusUnauthorized {
						t.Errorf("%s lists %s of %s at the %s: %d %.300s", caller.name, query, cluster, s.serverName(base), got.status, got.body)
					}
				}
			}
		}
	}
}

// testForgedClusterMetadata writes objects into workspace a whose metadata claims that they belong to b.
func testForgedClusterMetadata(t *testing.T, s *env) {
	claim := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"kcp.io/cluster":%q},"annotations":{"kcp.io/cluster":%q,"kcp.io/path":"root:b"}},"data":{"by":"alice"}}`, name, s.b, s.b)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"kcp.io/cluster":%q}},"data":{"by":"alice"}}`, s.b)
	for _, r := range []request{
		{method: http.MethodPost, path: configMapsPath, body: claim("claimed")},
		{method: http.MethodPost, path: configMapsPath + "?dryRun=All", body: claim("claimed-dry")},
		{method: http.MethodPut, path: configMapsPath + "/claimed", body: claim("claimed")},
		{method: http.MethodPut, path: configMapsPath + "/claimed?dryRun=All", body: claim("claimed")},
		{method: http.MethodPatch, path: configMapsPath + "/claimed", body: patch, contentType: mergePatchType},
		{method: http.MethodPatch, path: configMapsPath + "/claimed", body: patch, contentType: "application/strategic-merge-patch+json"},
		{method: http.MethodPatch, path: configMapsPath + "/claimed", body: `[{"op":"remove","path":"/metadata/annotations"}]`, contentType: "application/json-patch+json"},
		{method: http.MethodPatch, path: configMapsPath + "/applied?fieldManager=me&force=true", body: claim("applied"), contentType: applyPatchType},
		{method: http.MethodPatch, path: configMapsPath + "/applied?fieldManager=me&force=true&dryRun=All", body: claim("applied"), contentType: applyPatchType},
	} {
		if got := s.do(t, s.adminA, s.a, r); got.status >= 300 {
			t.Errorf("%s %s: %d %s", r.method, r.path, got.status, got.body)
		}
		for _, name := range []string{"claimed", "applied"} {
			got := s.do(t, s.adminA, s.a, request{path: configMapsPath + "/" + name})
			if got.status == http.StatusOK && !strings.Contains(got.body, fmt.Sprintf(`"kcp.io/cluster":%q`, s.a)) {
				t.Errorf("after %s %s: %s", r.method, r.path, got.body)
			}
			if got := s.do(t, s.adminB, s.b, request{path: configMapsPath + "/" + name}); got.status != http.StatusNotFound {
				t.Errorf("after %s %s, b has it: %d %s", r.method, r.path, got.status, got.body)
			}
		}
	}
}

// testForeignWrites attempts all kinds of writes in logical clusters that the user has no access to.
func testForeignWrites(t *testing.T, s *env) {
	object := func(apiVersion, kind, name string) string {
		return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q}}`, apiVersion, kind, name)
	}
	shard := `{"apiVersion":"core.kcp.io/v1alpha1","kind":"Shard","metadata":{"name":"evil"},"spec":{"baseURL":"https://evil.example"}}`
	binding := `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"evil"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"alice"}]}`
	leases := "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kcp-controllers"
	for _, cluster := range []string{s.b, "root", "system:admin", "system:shard", "system:nothing", "nosuchcluster", "*"} {
		for _, r := range []request{
			{method: http.MethodPost, path: configMapsPath, body: object("v1", "ConfigMap", "evil")},
			{method: http.MethodPatch, path: configMapsPath + "/evil?fieldManager=me", body: object("v1", "ConfigMap", "evil"), contentType: applyPatchType},
			{method: http.MethodDelete, path: configMapsPath},
			{method: http.MethodDelete, path: confidentialPath},
			{method: http.MethodPost, path: clusterBindings, body: binding},
			{method: http.MethodPost, path: "/apis/core.kcp.io/v1alpha1/shards", body: shard},
			{method: http.MethodPatch, path: "/apis/core.kcp.io/v1alpha1/shards/root", body: `{"spec":{"baseURL":"https://evil.example"}}`, contentType: mergePatchType},
			{method: http.MethodPatch, path: ownClusterPath, body: `{"metadata":{"annotations":{"core.kcp.io/inactive":"true"}}}`, contentType: mergePatchType},
			{method: http.MethodDelete, path: leases},
			{method: http.MethodPatch, path: leases, body: `{"spec":{"holderIdentity":"evil"}}`, contentType: mergePatchType},
			{path: "/api/v1/namespaces/kcp-system/secrets"},
			{path: "/api/v1/namespaces/kcp-system/secrets/tenancy.kcp.io"},
			{method: http.MethodPost, path: "/api/v1/namespaces/default/serviceaccounts/builder/token", body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`},
			{method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/subjectaccessreviews", body: `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"bob","nonResourceAttributes":{"path":"/","verb":"access"}}}`, header: http.Header{"X-Kcp-Internal-Deep-Subjectaccessreview": {"true"}}},
		} {
			for _, caller := range []*testUser{s.adminA, s.serviceAccount, s.unrelatedUser, s.anonymous} {
				for _, base := range s.serverURLs() {
					got := s.send(t, caller, base, request{method: r.method, path: "/clusters/" + cluster + r.path, body: r.body, contentType: r.contentType, header: r.header})
					if got.status != http.StatusForbidden && got.status != http.StatusUnauthorized {
						t.Errorf("%s: %s %s in %s at the %s: %d %.300s", caller.name, r.method, r.path, cluster, s.serverName(base), got.status, got.body)
					}
				}
			}
		}
	}
	for _, r := range []request{ // resources that only root serves
		{method: http.MethodPost, path: "/apis/core.kcp.io/v1alpha1/shards", body: shard},
		{method: http.MethodPatch, path: "/apis/core.kcp.io/v1alpha1/shards/evil?fieldManager=me", body: shard, contentType: applyPatchType},
		{method: http.MethodPost, path: "/apis/core.kcp.io/v1alpha1/shards/", body: shard},
		{method: http.MethodPost, path: "/apis/core.kcp.io/v1alpha1//shards", body: shard},
		{method: http.MethodPost, path: "/apis/core.kcp.io/v1alpha1/namespaces/default/shards", body: shard},
		{method: http.MethodPost, path: "/apis/core.kcp.io/v1alpha1/%73hards", body: shard},
		{method: http.MethodPost, path: "/apis/core.kcp.io/v1alpha1/shards:" + strings.Repeat("0", 64), body: shard},
		{method: http.MethodPost, path: "/apis/core.kcp.io/v1alpha1/shards%3a" + strings.Repeat("0", 64), body: shard},
		{method: http.MethodPut, path: "/apis/core.kcp.io/v1alpha1/shards/root/status", body: shard},
	} {
		if got := s.do(t, s.adminA, s.a, r); got.status != http.StatusNotFound && got.status != http.StatusMethodNotAllowed {
			t.Errorf("%s %s: %d %.300s", r.method, r.path, got.status, got.body)
		}
	}
}
