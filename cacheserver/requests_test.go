package cacheserver_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/cacheserver/client"
)

// sendRequest sends a request and returns the response.
func sendRequest(t *testing.T, config *rest.Config, method, path, media, body string, header ...string) (int, string) {
	t.Helper()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if media != "" {
		req.Header.Set("Content-Type", media)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	response, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	responseBody, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(responseBody)
}

const (
	exportsPath = "/services/cache/shards/mine/clusters/abc/apis/apis.kcp.io/v1alpha2/apiexports"
	exportJSON  = `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{"name":"x"}}`
)

func TestAuthorization(t *testing.T) {
	configs := map[string]*rest.Config{
		"masters": cache.Masters(t), "the shard": cache.Shard(t, "mine"), "another shard": cache.Shard(t, "other"),
		"a cache": cache.User(t, "system:kcp:cache:x", "system:kcp:cache"), "a user": cache.User(t, "joe", "system:authenticated"),
		"a shard name without the group": cache.User(t, "system:kcp:shard:mine", "system:kcp:admin"),
		"the shard group without a name": cache.User(t, "system:kcp:virtual-workspace:x", "system:kcp:shard"),
		"an empty shard name":            cache.User(t, "system:kcp:shard:", "system:kcp:shard"),
		"anonymous":                      cache.Anonymous(),
	}
	readers := []string{"masters", "the shard", "another shard", "a cache", "the shard group without a name", "an empty shard name"}
	writers := []string{"masters", "the shard", "a cache"}
	for name, tc := range map[string]struct {
		method, path, media, body string
		allowed                   []string
	}{
		"health":                  {"GET", "/healthz", "", "", nil},
		"readiness":               {"GET", "/readyz", "", "", nil},
		"health in a scope":       {"GET", "/services/cache/shards/mine/healthz", "", "", nil},
		"metrics":                 {"GET", "/metrics", "", "", []string{"masters"}},
		"version":                 {"GET", "/version", "", "", []string{"masters"}},
		"profiles":                {"GET", "/debug/pprof/cmdline", "", "", []string{"masters"}},
		"discovery":               {"GET", "/services/cache/shards/mine/clusters/*/apis", "", "", readers},
		"wildcard list":           {"GET", "/services/cache/shards/*/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports", "", "", readers},
		"list without the prefix": {"GET", "/shards/*/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports", "", "", readers},
		"profiles in a scope":     {"GET", "/services/cache/shards/mine/debug/pprof/cmdline", "", "", []string{"masters"}},
		"logging in a scope":      {"PUT", "/services/cache/shards/mine/debug/flags/v", "", "0", []string{"masters"}},
		"create":                  {"POST", exportsPath + "?dryRun=All", "application/json", exportJSON, writers},
		"delete collection":       {"DELETE", exportsPath, "", "", writers},
		"cached resources":        {"DELETE", "/services/cache/shards/mine/clusters/abc/api/v1/configmaps:123", "", "", writers},
	} {
		for user, config := range configs {
			code, answer := sendRequest(t, config, tc.method, tc.path, tc.media, tc.body)
			if allowed := tc.allowed == nil || slices.Contains(tc.allowed, user); allowed == (code == http.StatusForbidden) || code >= 500 {
				t.Errorf("%s for %s: %d %s", name, user, code, answer)
			}
		}
	}
}

// Impersonation would put another user into the audit log.
func TestImpersonationIsForbidden(t *testing.T) {
	for user, config := range map[string]*rest.Config{"the shard": cache.Shard(t, "mine"), "a cache": cache.User(t, "system:kcp:cache:x", "system:kcp:cache")} {
		code, answer := sendRequest(t, config, "GET", exportsPath, "", "", "Impersonate-User", "admin", "Impersonate-Group", "system:masters")
		if code != http.StatusForbidden {
			t.Errorf("%s impersonates: %d %.300s", user, code, answer)
		}
	}
}

func TestAllRoutesRequireAuthorization(t *testing.T) {
	user := cache.User(t, "joe", "system:authenticated", "system:kcp:admin")
	paths := cache.Server.Generic.ListedPaths()
	if len(paths) < 10 {
		t.Fatalf("only the routes %q exist", paths)
	}
	for _, path := range append(paths, "/debug/pprof/", "/api", "/apis", "/openapi/v2", "/logs/", "/configz", "/flagz", "/statusz") {
		if open := path == "/healthz" || path == "/livez" || path == "/readyz"; open {
			continue
		}
		for _, prefix := range []string{"", "/services/cache", "/services/cache/shards/a", "/services/cache/shards/*/clusters/*"} {
			for name, config := range map[string]*rest.Config{"a user": user, "anonymous": cache.Anonymous()} {
				code, answer := sendRequest(t, config, "GET", prefix+path, "", "")
				if code != http.StatusForbidden && code != http.StatusBadRequest && code != http.StatusNotImplemented {
					t.Errorf("%s%s for %s: %d %.200s", prefix, path, name, code, answer)
				}
			}
		}
	}
}

func TestInvalidRequests(t *testing.T) {
	masters := cache.Masters(t)
	all := strings.Replace(exportsPath, "mine/clusters/abc", "*/clusters/*", 1)
	for name, tc := range map[string]struct {
		method, path, media, body string
		code                      int
		contains                  string
	}{
		"no shard":                                 {"GET", "/services/cache/apis/apis.kcp.io/v1alpha2/apiexports", "", "", 400, "a shard name is required"},
		"no shard at the root":                     {"GET", "/", "", "", 400, "a shard name is required"},
		"an empty shard":                           {"GET", "/services/cache/shards//clusters/x/apis", "", "", 400, "a shard name is required"},
		"an invalid shard name":                    {"GET", "/services/cache/shards/A_b/clusters/*/apis", "", "", 400, "invalid shard"},
		"a shard name that is too long":            {"GET", "/services/cache/shards/" + strings.Repeat("a", 62) + "/clusters/*/apis", "", "", 400, "invalid shard"},
		"an invalid cluster name":                  {"GET", "/services/cache/shards/a/clusters/A_b/apis", "", "", 400, ""},
		"an escaped slash":                         {"GET", "/services/cache/shards/a%2Fb/clusters/c/apis", "", "", 404, ""},
		"metrics of a shard":                       {"GET", "/services/cache/shards/a/clusters/*/metrics", "", "", 501, "shard-level endpoint not available"},
		"a group that is not stored":               {"GET", strings.Replace(all, "apis.kcp.io", "apps", 1), "", "", 404, ""},
		"a resource that is not stored":            {"GET", strings.Replace(all, "apiexports", "apibindings", 1), "", "", 404, ""},
		"a reserved identity":                      {"GET", strings.Replace(exportsPath, "apiexports", "apiexports:customresources", 1), "", "", 404, ""},
		"another version":                          {"GET", strings.Replace(all, "v1alpha2", "v1beta1", 1), "", "", 404, ""},
		"a namespace of a cluster-scoped resource": {"GET", strings.Replace(exportsPath, "apiexports", "namespaces/x/apiexports", 1), "", "", 404, ""},
		"a subresource":                            {"GET", exportsPath + "/x/status", "", "", 404, ""},
		"get in all clusters":                      {"GET", all + "/x", "", "", 405, ""},
		"create in all clusters":                   {"POST", all, "application/json", exportJSON, 405, ""},
		"delete in all clusters":                   {"DELETE", all, "", "", 405, ""},
		"an object without a name":                 {"POST", exportsPath, "application/json", strings.Replace(exportJSON, `"name":"x"`, "", 1), 422, "name is required"},
		"an object without a kind":                 {"POST", exportsPath, "application/json", `{"apiVersion":"apis.kcp.io/v1alpha2","metadata":{"name":"x"}}`, 400, ""},
		"another kind":                             {"POST", exportsPath, "application/json", strings.Replace(exportJSON, "APIExport", "APIBinding", 1), 400, "does not match"},
		"another version in the object":            {"POST", exportsPath, "application/json", strings.Replace(exportJSON, "v1alpha2", "v1alpha1", 1), 400, "does not match"},
		"a name with a slash":                      {"POST", exportsPath, "application/json", strings.Replace(exportJSON, `"x"`, `"x/y"`, 1), 400, "is not a valid name"},
		"a name with path traversal":               {"POST", exportsPath, "application/json", strings.Replace(exportJSON, `"x"`, `".."`, 1), 400, "is not a valid name"},
		"a resource version":                       {"POST", exportsPath, "application/json", strings.Replace(exportJSON, `"x"`, `"x","resourceVersion":"1"`, 1), 400, "resourceVersion"},
		"invalid labels":                           {"POST", exportsPath, "application/json", strings.Replace(exportJSON, `"x"`, `"x","labels":[1]`, 1), 400, "metadata"},
		"a list":                                   {"POST", exportsPath, "application/json", `{"apiVersion":"v1","kind":"List","items":[]}`, 400, ""},
		"no JSON":                                  {"POST", exportsPath, "application/json", `{`, 400, ""},
		"an empty body":                            {"POST", exportsPath, "application/json", ``, 400, ""},
		"Protobuf":                                 {"POST", exportsPath, "application/vnd.kubernetes.protobuf", exportJSON, 415, ""},
		"server-side apply":                        {"PATCH", exportsPath + "/x?fieldManager=me", "application/apply-patch+yaml", exportJSON, 415, ""},
		"update of a missing object":               {"PUT", exportsPath + "/x", "application/json", exportJSON, 404, ""},
		"an object that etcd refuses":              {"POST", exportsPath, "application/json", strings.Replace(exportJSON, `"x"`, `"`+strings.Repeat("x", 7<<18)+`"`, 1), 413, ""},
		"an object that etcd's client refuses":     {"POST", exportsPath, "application/json", strings.Replace(exportJSON, `"x"`, `"`+strings.Repeat("x", 5<<19)+`"`, 1), 413, ""},
		"an object that is too large":              {"POST", exportsPath, "application/json", strings.Replace(exportJSON, `"x"`, `"`+strings.Repeat("x", 4<<20)+`"`, 1), 413, ""},
		"a selector for an unknown field":          {"GET", exportsPath + "?fieldSelector=spec.x%3Dy", "", "", 400, "field selector"},
		"a watch of a future resource version":     {"GET", all + "?watch=true&resourceVersion=99999999", "", "", 410, "ahead of this cache"},
	} {
		code, answer := sendRequest(t, masters, tc.method, tc.path, tc.media, tc.body)
		if code != tc.code || !strings.Contains(answer, tc.contains) {
			t.Errorf("%s: %d %.300s, want %d %s", name, code, answer, tc.code, tc.contains)
		}
		// Outside of the APIs, the stock server responds with a plain 404.
		if status := (metav1.Status{}); tc.code != 404 && (json.Unmarshal([]byte(answer), &status) != nil || int(status.Code) != tc.code) {
			t.Errorf("%s: the response is not a Status: %.300s", name, answer)
		}
	}
}

func TestRepresentationsAndPatches(t *testing.T) {
	masters := cache.Masters(t)
	exportsURL := strings.Replace(exportsPath, "mine", "forms", 1)
	if code, answer := sendRequest(t, masters, "POST", exportsURL, "application/yaml", "apiVersion: apis.kcp.io/v1alpha2\nkind: APIExport\nmetadata:\n  name: yy\n  labels: {a: b}\nspec: {big: 9007199254740993}\n"); code != 201 {
		t.Fatalf("creation with YAML: %d %s", code, answer)
	}
	all := strings.Replace(exportsURL, "forms/clusters/abc", "*/clusters/abc", 1) + "?labelSelector=a%3Db"
	for name, tc := range map[string]struct {
		method, path, media, body, accept string
		code                              int
		contains                          string
	}{
		"numbers are kept":            {"GET", exportsURL + "/yy", "", "", "application/json", 200, "9007199254740993"},
		"YAML":                        {"GET", exportsURL + "/yy", "", "", "application/yaml", 200, "big: 9007199254740993"},
		"a list of a cluster":         {"GET", all, "", "", "application/json", 200, `"kcp.io/shard":"forms"`},
		"a list with another label":   {"GET", strings.Replace(all, "a%3Db", "a%3Dc", 1), "", "", "application/json", 200, `"items":[]`},
		"an empty list has a kind":    {"GET", strings.Replace(all, "a%3Db", "a%3Dc", 1), "", "", "application/json", 200, `"kind":"APIExportList"`},
		"a table":                     {"GET", all, "", "", "application/json;as=Table;g=meta.k8s.io;v=v1", 200, `"cells":["yy","forms","abc",`},
		"partial metadata":            {"GET", all, "", "", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", 200, `"kind":"PartialObjectMetadataList"`},
		"an update without a version": {"PUT", exportsURL + "/yy", "application/json", strings.Replace(exportJSON, `"x"`, `"yy"`, 1), "application/json", 422, "must be specified for an update"},
		"discovery of a version":      {"GET", "/services/cache/shards/*/clusters/*/apis/rbac.authorization.k8s.io/v1", "", "", "application/json", 200, `"name":"clusterroles"`},
		"discovery of groups":         {"GET", "/services/cache/shards/*/clusters/*/apis", "", "", "application/json", 200, `"name":"sharding.kcp.io"`},
		"discovery of a group":        {"GET", "/services/cache/shards/*/clusters/*/apis/apis.kcp.io", "", "", "application/json", 200, `"preferredVersion":{"groupVersion":"apis.kcp.io/v1alpha2"`},
		"no legacy group":             {"GET", "/services/cache/shards/*/clusters/*/api", "", "", "application/json", 200, `"versions":[]`},
		"a watch with initial events": {"GET", all + "&watch=true&timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "", "", "application/json", 200, `"k8s.io/initial-events-end":"true"`},
		"a watch of another store":    {"GET", all + "&watch=true&resourceVersion=1", "", "", "another", 410, ""},
	} {
		header := []string{"Accept", tc.accept}
		if tc.accept == "another" {
			header = []string{client.IncarnationHeader, tc.accept}
		}
		if code, answer := sendRequest(t, masters, tc.method, tc.path, tc.media, tc.body, header...); code != tc.code || !strings.Contains(answer, tc.contains) {
			t.Errorf("%s: %d %.600s, want %d %s", name, code, answer, tc.code, tc.contains)
		}
	}
	for _, tc := range []struct {
		name, query, media, body string
		code                     int
		contains                 string
	}{
		{"a merge patch", "", "application/merge-patch+json", `{"status":{"phase":"ok"}}`, 200, `"phase":"ok"`},
		{"a JSON patch", "", "application/json-patch+json", `[{"op":"replace","path":"/status/phase","value":"better"}]`, 200, `"phase":"better"`},
		{"a dry-run patch", "?dryRun=All", "application/merge-patch+json", `{"status":{"phase":"tried"}}`, 200, `"phase":"tried"`},
		{"a dry-run patch is not stored", "", "application/merge-patch+json", `{}`, 200, `"phase":"better"`},
		{"a JSON patch with a failing test", "", "application/json-patch+json", `[{"op":"test","path":"/kind","value":"better"}]`, 422, ""},
		{"a patch with an old resource version", "", "application/merge-patch+json", `{"metadata":{"resourceVersion":"1"}}`, 409, ""},
		{"a patch of the name", "", "application/merge-patch+json", `{"metadata":{"name":"z"}}`, 400, ""},
		{"a patch cannot change shard and cluster", "", "application/merge-patch+json", `{"metadata":{"annotations":{"kcp.io/shard":"evil","kcp.io/cluster":"evil"}}}`, 200, `"kcp.io/cluster":"abc","kcp.io/shard":"forms"`},
	} {
		if code, answer := sendRequest(t, masters, "PATCH", exportsURL+"/yy"+tc.query, tc.media, tc.body); code != tc.code || !strings.Contains(answer, tc.contains) {
			t.Errorf("%s: %d %.600s, want %d %s", tc.name, code, answer, tc.code, tc.contains)
		}
	}
}
