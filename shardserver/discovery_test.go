package shardserver_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/atoll-dev/atoll/internal/buildversion"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// TestDiscoveryAndOpenAPI covers the documents that clients read before they send requests for resources.
func TestDiscoveryAndOpenAPI(t *testing.T) {
	shard := shardtesting.Start(t, func(o *options.Options) { o.Shard.ExternalURL = "https://workspaces.example.com" })
	shard.NewWorkspace(t, "root", "docs")
	admin := shardtesting.At(shard.Admin(t), "root:docs")
	root := shardtesting.At(shard.Admin(t), "root")

	t.Run("both forms of discovery are equal", func(t *testing.T) { testDiscoveryForms(t, admin, root) })
	t.Run("shards are in the discovery of root", func(t *testing.T) { testShardsInDiscovery(t, shard, admin) })
	t.Run("REST mapping of kubectl", func(t *testing.T) { testRESTMapping(t, admin) })
	t.Run("OpenAPI v3 has a document for every version", func(t *testing.T) { testOpenAPIv3(t, admin) })
	t.Run("OpenAPI v3 without a logical cluster", func(t *testing.T) {
		for _, path := range []string{"/openapi/v3", "/openapi/v3/api/v1"} {
			if got := getStatus(t, shard.Masters(t), path); got != http.StatusNotFound {
				t.Errorf("GET %s: got %d, want 404", path, got)
			}
		}
	})
	t.Run("OpenAPI v2 is one document", func(t *testing.T) { testOpenAPIv2(t, admin) })
	t.Run("documents have the address for users only", func(t *testing.T) { testAddresses(t, shard, admin) })
	t.Run("explain finds fields", func(t *testing.T) { testExplain(t, admin) })
	t.Run("the version is that of Kubernetes, with the level of kcp", func(t *testing.T) {
		var info version.Info
		getJSON(t, admin, "/version", &info)
		parsed, err := utilversion.ParseSemantic(info.GitVersion) // as kubectl does
		if err != nil || parsed.Major() != 1 || parsed.Minor() < 36 || info.Major != "1" || info.Minor == "" || !strings.HasSuffix(info.GitVersion, "+kcp-v"+buildversion.KCP) {
			t.Errorf("got %+v, %v", info, err)
		}
	})
	t.Run("clients that prefer protobuf get it for the kinds that have it", func(t *testing.T) { testProtobufPreference(t, admin) })
}

// testAddresses checks that no document has the address of the shard, which users do not use.
func testAddresses(t *testing.T, shard *shardtesting.Shard, admin *rest.Config) {
	var versions metav1.APIVersions
	getJSON(t, admin, "/api", &versions)
	want := []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: "workspaces.example.com:443"}}
	if !slices.Equal(versions.ServerAddressByClientCIDRs, want) {
		t.Errorf("/api has the addresses %v", versions.ServerAddressByClientCIDRs)
	}
	_, port, err := net.SplitHostPort(shard.Server.Host())
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"/api", "/apis", "/api/v1", "/apis/tenancy.kcp.io", "/version", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1", "/.well-known/openid-configuration",
		"/apis/core.kcp.io/v1alpha1/logicalclusters/cluster", "/api/v1/namespaces/default/configmaps/missing", "/apis/missing.example.com/v1", "/missing",
		"/services/missing/", "/clusters/root:missing/api",
	} {
		response, body := shardtesting.Send(t, admin, http.MethodGet, path, "")
		if strings.Contains(body, ":"+port) || strings.Contains(body, shard.Server.Host()) {
			t.Errorf("%s (%s) has the address of the shard", path, response.Status)
		}
		for _, values := range response.Header {
			if strings.Contains(strings.Join(values, " "), ":"+port) {
				t.Errorf("%s: a header has the address of the shard: %v", path, values)
			}
		}
	}
}

// listDiscovery returns a line for every resource in discovery. Legacy is the unaggregated form.
func listDiscovery(t *testing.T, config *rest.Config, legacy bool) []string {
	t.Helper()
	client := discovery.NewDiscoveryClientForConfigOrDie(config)
	client.UseLegacyDiscovery = legacy
	groups, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, list := range lists {
		for _, r := range list.APIResources {
			slices.Sort(r.Verbs)
			if strings.Contains(r.Name, "/") {
				r.SingularName = "" // clients derive one from the aggregated form
			}
			all = append(all, fmt.Sprintf("%s %s %s namespaced=%t %v %v %v %s", list.GroupVersion, r.Name, r.Kind, r.Namespaced, r.Verbs, r.ShortNames, r.Categories, r.SingularName))
		}
	}
	for _, group := range groups {
		all = append(all, fmt.Sprintf("%s prefers %s", group.Name, group.PreferredVersion.GroupVersion))
	}
	slices.Sort(all)
	return all
}

func testDiscoveryForms(t *testing.T, configs ...*rest.Config) {
	for _, config := range configs {
		legacy, aggregated := listDiscovery(t, config, true), listDiscovery(t, config, false)
		for _, line := range legacy {
			if !slices.Contains(aggregated, line) {
				t.Errorf("%s: not in the aggregated form: %s", config.Host, line)
			}
		}
		for _, line := range aggregated {
			if !slices.Contains(legacy, line) {
				t.Errorf("%s: not in the unaggregated form: %s", config.Host, line)
			}
		}
		if len(aggregated) < 30 {
			t.Errorf("%s: only %d lines of discovery", config.Host, len(aggregated))
		}
	}
}

func testShardsInDiscovery(t *testing.T, shard *shardtesting.Shard, workspace *rest.Config) {
	for config, want := range map[*rest.Config]bool{
		workspace:                               false,
		shardtesting.At(shard.Admin(t), "root"): true,
		shardtesting.At(shard.Masters(t), "system:shard"): true,
		shardtesting.At(shard.Masters(t), "system:admin"): false,
	} {
		for _, legacy := range []bool{true, false} {
			shown := slices.ContainsFunc(listDiscovery(t, config, legacy), func(line string) bool {
				return strings.HasPrefix(line, "core.kcp.io/v1alpha1 shards ")
			})
			if shown != want {
				t.Errorf("%s, unaggregated %t: shards are shown: %t, want %t", config.Host, legacy, shown, want)
			}
		}
		want := map[bool]int{true: http.StatusOK, false: http.StatusNotFound}[want]
		if got := getStatus(t, config, "/apis/core.kcp.io/v1alpha1/shards"); got != want {
			t.Errorf("%s: GET shards: got %d, want %d", config.Host, got, want)
		}
	}
	// The two documents have different ETags: a cache must distinguish them.
	tags := map[string]bool{}
	for _, config := range []*rest.Config{workspace, shardtesting.At(shard.Admin(t), "root")} {
		response := get(t, config, "/apis", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		tags[response.Header.Get("ETag")] = true
	}
	if len(tags) != 2 || tags[""] {
		t.Errorf("tags are %v", tags)
	}
}

func testRESTMapping(t *testing.T, config *rest.Config) {
	client := memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(config))
	deferred := restmapper.NewDeferredDiscoveryRESTMapper(client)
	mapper := restmapper.NewShortcutExpander(deferred, client, nil)
	for name, want := range map[string]string{
		"cm": "/v1, Resource=configmaps", "ns": "/v1, Resource=namespaces", "sa": "/v1, Resource=serviceaccounts", "secret": "/v1, Resource=secrets",
		"ws": "tenancy.kcp.io/v1alpha1, Resource=workspaces", "workspace": "tenancy.kcp.io/v1alpha1, Resource=workspaces",
		"workspacetype": "tenancy.kcp.io/v1alpha1, Resource=workspacetypes", "logicalcluster": "core.kcp.io/v1alpha1, Resource=logicalclusters",
		"lease": "coordination.k8s.io/v1, Resource=leases", "clusterrole": "rbac.authorization.k8s.io/v1, Resource=clusterroles",
	} {
		got, err := mapper.ResourceFor(schema.GroupVersionResource{Resource: name})
		if err != nil || got.String() != want {
			t.Errorf("%q is mapped to %q (%v), want %q", name, got, err, want)
		}
	}
	for kind, want := range map[schema.GroupKind]meta.RESTScopeName{
		{Kind: "ConfigMap"}: meta.RESTScopeNameNamespace, {Group: "tenancy.kcp.io", Kind: "Workspace"}: meta.RESTScopeNameRoot,
	} {
		mapping, err := mapper.RESTMapping(kind)
		if err != nil || mapping.Scope.Name() != want {
			t.Errorf("%s is mapped to %v (%v), want scope %s", kind, mapping, err, want)
		}
	}
	if _, err := mapper.RESTMapping(schema.GroupKind{Kind: "Pod"}); !meta.IsNoMatchError(err) {
		t.Errorf("a kind that is not served: got %v, want no match", err)
	}
}

func testOpenAPIv3(t *testing.T, config *rest.Config) {
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	getJSON(t, config, "/openapi/v3", &index)
	_, lists, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		name := "apis/" + list.GroupVersion
		if !strings.Contains(list.GroupVersion, "/") {
			name = "api/" + list.GroupVersion
		}
		entry, ok := index.Paths[name]
		if !ok {
			t.Errorf("no document for %s", name)
			continue
		}
		_, hash, hashed := strings.Cut(entry.ServerRelativeURL, "?hash=")
		if !hashed {
			t.Errorf("%s: the URL %q has no hash", name, entry.ServerRelativeURL)
		}
		path := "/openapi/v3/" + name
		document := get(t, config, path+"?hash="+hash, "Accept", "application/json")
		if tag := strings.Trim(document.Header.Get("ETag"), `"`); tag != hash {
			t.Errorf("%s: the ETag %q and the hash %q do not agree", name, tag, hash)
		}
		if !strings.Contains(document.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: a document with its hash may be cached for ever, got %q", name, document.Header.Get("Cache-Control"))
		}
		again := get(t, config, path, "Accept", "application/json", "If-None-Match", document.Header.Get("ETag"))
		if again.StatusCode != http.StatusNotModified {
			t.Errorf("%s: second request with its ETag: got %d, want 304", name, again.StatusCode)
		}
		var content struct {
			Paths      map[string]any
			Components struct{ Schemas map[string]any }
		}
		if err := json.Unmarshal([]byte(document.body), &content); err != nil || len(content.Paths) == 0 {
			t.Errorf("%s: %v, %d paths", name, err, len(content.Paths))
		}
	}
}

func testOpenAPIv2(t *testing.T, config *rest.Config) {
	document, err := discovery.NewDiscoveryClientForConfigOrDie(config).OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, definition := range document.GetDefinitions().GetAdditionalProperties() {
		names = append(names, definition.GetName())
	}
	if !slices.Contains(names, "io.k8s.api.core.v1.ConfigMap") {
		t.Errorf("%d definitions, none of ConfigMap", len(names))
	}
}

// testExplain resolves fields as kubectl explain does: the kind by its extension, then reference by reference.
func testExplain(t *testing.T, config *rest.Config) {
	expectFields(t, config, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "data")
	expectFields(t, config, schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}, "rules", "verbs")
	expectFields(t, config, schema.GroupVersionKind{Group: "tenancy.kcp.io", Version: "v1alpha1", Kind: "Workspace"}, "spec", "type", "path")
	expectFields(t, config, schema.GroupVersionKind{Group: "tenancy.kcp.io", Version: "v1alpha1", Kind: "WorkspaceType"}, "spec", "extend", "with", "name")
	expectFields(t, config, schema.GroupVersionKind{Group: "core.kcp.io", Version: "v1alpha1", Kind: "LogicalCluster"}, "status", "phase")
}

func expectFields(t *testing.T, config *rest.Config, kind schema.GroupVersionKind, path ...string) {
	t.Helper()
	spec, err := openapi3.NewRoot(discovery.NewDiscoveryClientForConfigOrDie(config).OpenAPIV3()).GVSpecAsMap(kind.GroupVersion())
	if err != nil {
		t.Errorf("%s: %v", kind, err)
		return
	}
	schemas := spec["components"].(map[string]any)["schemas"].(map[string]any)
	current := findSchema(schemas, kind)
	if current == nil {
		t.Errorf("%s has no schema", kind)
		return
	}
	for _, field := range path {
		properties, _ := resolveReference(schemas, current)["properties"].(map[string]any)
		next, ok := properties[field].(map[string]any)
		if !ok {
			t.Errorf("%s: no field %s of %v", kind, field, path)
			return
		}
		if description, _ := next["description"].(string); description == "" {
			t.Errorf("%s: field %s of %v has no description", kind, field, path)
		}
		current = next
	}
}

func findSchema(schemas map[string]any, want schema.GroupVersionKind) map[string]any {
	for _, candidate := range schemas {
		kinds, _ := candidate.(map[string]any)["x-kubernetes-group-version-kind"].([]any)
		for _, kind := range kinds {
			k := kind.(map[string]any)
			if len(kinds) == 1 && k["group"] == want.Group && k["version"] == want.Version && k["kind"] == want.Kind {
				return candidate.(map[string]any)
			}
		}
	}
	return nil
}

// resolveReference resolves a reference, alone or within allOf, and descends into lists.
func resolveReference(schemas, node map[string]any) map[string]any {
	for {
		if items, ok := node["items"].(map[string]any); ok {
			node = items
			continue
		}
		ref, _ := node["$ref"].(string)
		if all, ok := node["allOf"].([]any); ok && len(all) == 1 {
			ref, _ = all[0].(map[string]any)["$ref"].(string)
		}
		if ref == "" {
			return node
		}
		node, _ = schemas[strings.TrimPrefix(ref, "#/components/schemas/")].(map[string]any)
	}
}

func testProtobufPreference(t *testing.T, config *rest.Config) {
	for path, want := range map[string]string{
		"/api/v1/namespaces":                              protobuf,
		"/apis/rbac.authorization.k8s.io/v1/clusterroles": protobuf,
		"/apis/tenancy.kcp.io/v1alpha1/workspaces":        "application/json",
		"/apis/tenancy.kcp.io/v1alpha1/workspaces/absent": "application/json",
		"/apis/core.kcp.io/v1alpha1/logicalclusters":      "application/json",
		"/apis/core.kcp.io/v1alpha1":                      protobuf,
		"/apis":                                           protobuf,
	} {
		response := get(t, config, path, "Accept", protobuf+",application/json")
		if got := response.Header.Get("Content-Type"); got != want {
			t.Errorf("GET %s returned %q, want %q", path, got, want)
		}
	}
	typed := rest.CopyConfig(config)
	typed.AcceptContentTypes, typed.ContentType = protobuf+",application/json", protobuf
	clientset := (&shardtesting.Shard{}).Kubernetes(t, typed)
	if namespaces, err := clientset.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil || len(namespaces.Items) == 0 {
		t.Errorf("a typed client that speaks protobuf: %v, %v", namespaces, err)
	}
}

// httpResponse is a response whose body has been read.
type httpResponse struct {
	*http.Response
	body string
}

func get(t *testing.T, config *rest.Config, path string, headers ...string) httpResponse {
	t.Helper()
	response, body := shardtesting.Send(t, config, http.MethodGet, path, "", headers...)
	return httpResponse{response, body}
}

func getJSON(t *testing.T, config *rest.Config, path string, into any) {
	t.Helper()
	got := get(t, config, path, "Accept", "application/json")
	if got.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: got %d: %s", path, got.StatusCode, got.body)
	}
	if err := json.Unmarshal([]byte(got.body), into); err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
}
