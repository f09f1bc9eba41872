package shardserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// newDefinition returns a definition of a namespaced kind whose spec has the given fields, each a string. Its versions are
// all served, the first one is stored.
func newDefinition(group, plural, kind string, versions []string, fields ...string) *apiextensionsv1.CustomResourceDefinition {
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", Description: "What is wanted.", Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
	for _, field := range fields {
		spec.Properties[field] = apiextensionsv1.JSONSchemaProps{Type: "string", Description: "The " + field + "."}
	}
	object := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: plural, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List",
				ShortNames: []string{plural[:2] + "x"}, Categories: []string{"all"},
			},
		},
	}
	for i, version := range versions {
		object.Spec.Versions = append(object.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: version, Served: true, Storage: i == 0,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec, "status": {Type: "object"}},
			}},
			Subresources: &apiextensionsv1.CustomResourceSubresources{
				Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
				Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"},
			},
		})
	}
	return object
}

// createDefinition creates a definition and returns once it is established.
func createDefinition(t *testing.T, config *rest.Config, object *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	definitions := clientset.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions()
	if _, err := definitions.Create(t.Context(), object.DeepCopy(), metav1.CreateOptions{}); err != nil {
		t.Fatalf("creating definition %s: %v", object.Name, err)
	}
	shardtesting.Eventually(t, "definition "+object.Name+" is established", func(ctx context.Context) error {
		got, err := definitions.Get(ctx, object.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !apihelpers.IsCRDConditionTrue(got, apiextensionsv1.Established) {
			return fmt.Errorf("its conditions are %v", got.Status.Conditions)
		}
		return nil
	})
}

// TestDefinitionsInDiscoveryAndOpenAPI covers what definitions add to discovery and OpenAPI of their own logical
// cluster.
func TestDefinitionsInDiscoveryAndOpenAPI(t *testing.T) {
	shard := shardtesting.Start(t)
	workspace := func(name string) *rest.Config {
		shard.NewWorkspace(t, "root", name)
		return shardtesting.At(shard.Admin(t), "root:"+name)
	}
	first, second, empty := workspace("first"), workspace("second"), workspace("empty")
	createDefinition(t, first, newDefinition("example.com", "widgets", "Widget", []string{"v1", "v1beta1", "v2alpha1"}, "color"))
	createDefinition(t, second, newDefinition("example.com", "widgets", "Gadget", []string{"v1"}, "size"))

	t.Run("both forms of discovery are equal", func(t *testing.T) { testDiscoveryForms(t, first, second) })
	t.Run("discovery of a definition equals that of a stock server", func(t *testing.T) { testDefinitionInDiscovery(t, first) })
	t.Run("definitions of one name in two workspaces are independent", func(t *testing.T) { testSameNameInTwoWorkspaces(t, first, second, empty) })
	t.Run("a definition is in discovery once it is established", func(t *testing.T) { testImmediateDiscovery(t, workspace("eager")) })
	t.Run("REST mapping with cached discovery finds new definitions", func(t *testing.T) { testRESTMappingOfDefinitions(t, workspace("mapped")) })
	t.Run("a terminating definition allows no creation", func(t *testing.T) { testTerminatingDefinition(t, workspace("going")) })
	t.Run("fields are explained", func(t *testing.T) { testExplainDefinitions(t, first, second) })
	t.Run("equal sets share one document", func(t *testing.T) {
		third := workspace("third")
		createDefinition(t, third, newDefinition("example.com", "widgets", "Gadget", []string{"v1"}, "size"))
		testSharedDocuments(t, shard, second, third)
	})
	t.Run("unchanged documents are not sent again", func(t *testing.T) { testNotModified(t, first) })
	t.Run("an outdated hash redirects to the current document", func(t *testing.T) { testOutdatedHash(t, first) })
	t.Run("unknown groups are not found", func(t *testing.T) {
		for _, path := range []string{
			"/apis/example.org", "/apis/example.com/v3", "/apis/example.org/v1", "/openapi/v3/apis/example.com/v3", "/openapi/v3/apis/example.org/v1", "/api/v2",
		} {
			if got := getStatus(t, first, path); got != http.StatusNotFound {
				t.Errorf("GET %s: got %d, want 404", path, got)
			}
		}
	})
}

func testDefinitionInDiscovery(t *testing.T, config *rest.Config) {
	var group metav1.APIGroup
	getJSON(t, config, "/apis/example.com", &group)
	var versions []string
	for _, version := range group.Versions {
		versions = append(versions, version.Version)
	}
	if want := []string{"v1", "v1beta1", "v2alpha1"}; !slices.Equal(versions, want) || group.PreferredVersion.Version != "v1" || group.Kind != "APIGroup" {
		t.Errorf("got %+v, want versions %v", group, want)
	}
	var groups metav1.APIGroupList
	getJSON(t, config, "/apis", &groups)
	if last := groups.Groups[len(groups.Groups)-1]; last.Name != "example.com" {
		t.Errorf("groups of definitions must be last, got %s", last.Name)
	}
	var list apidiscoveryv2.APIGroupDiscoveryList
	response := get(t, config, "/apis", "Accept", aggregated)
	if err := json.Unmarshal([]byte(response.body), &list); err != nil || len(list.Items) != len(groups.Groups) {
		t.Fatalf("%v: %d groups, unaggregated %d", err, len(list.Items), len(groups.Groups))
	}
	for i := range list.Items {
		if list.Items[i].Name != groups.Groups[i].Name {
			t.Errorf("group %d is %s, unaggregated %s", i, list.Items[i].Name, groups.Groups[i].Name)
		}
	}
	var resources metav1.APIResourceList
	getJSON(t, config, "/apis/example.com/v1beta1", &resources)
	got, err := json.Marshal(resources)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1beta1","resources":[` +
		`{"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget","verbs":["delete","deletecollection","get","list","patch","create","update","watch"],` +
		`"shortNames":["wix"],"categories":["all"],"storageVersionHash":"` + discoveryHash(t, config) + `"},` +
		`{"name":"widgets/status","singularName":"","namespaced":true,"kind":"Widget","verbs":["get","patch","update"]},` +
		`{"name":"widgets/scale","singularName":"","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale","verbs":["get","patch","update"]}]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// discoveryHash returns the hash of the stored version, which is the same for all versions.
func discoveryHash(t *testing.T, config *rest.Config) string {
	t.Helper()
	var resources metav1.APIResourceList
	getJSON(t, config, "/apis/example.com/v1", &resources)
	hash := resources.APIResources[0].StorageVersionHash
	if hash == "" {
		t.Error("no hash of the stored version")
	}
	return hash
}

func testSameNameInTwoWorkspaces(t *testing.T, first, second, empty *rest.Config) {
	kinds := map[string]*rest.Config{"Widget": first, "Gadget": second}
	for kind, config := range kinds {
		for _, legacy := range []bool{true, false} {
			lines := strings.Join(listDiscovery(t, config, legacy), "\n")
			for other := range kinds {
				if shown := strings.Contains(lines, "example.com/v1 widgets "+other+" "); shown != (kind == other) {
					t.Errorf("%s: %s is shown: %t", config.Host, other, shown)
				}
			}
		}
	}
	for _, legacy := range []bool{true, false} {
		if lines := strings.Join(listDiscovery(t, empty, legacy), "\n"); strings.Contains(lines, "example.com") {
			t.Errorf("a workspace without definitions serves %s", lines)
		}
	}
	for _, path := range []string{"/openapi/v3/apis/example.com/v1", "/openapi/v2", "/openapi/v3", "/apis"} {
		tags := map[string]bool{}
		for _, config := range []*rest.Config{first, second, empty} {
			accept := "application/json"
			if path == "/apis" {
				accept = aggregated
			}
			tags[get(t, config, path, "Accept", accept).Header.Get("ETag")] = true
		}
		if len(tags) != 3 {
			t.Errorf("%s: the tags of three workspaces are %v", path, tags)
		}
	}
	for config, want := range map[*rest.Config]bool{first: true, second: false} {
		document := get(t, config, "/openapi/v2", "Accept", "application/json").body
		if has := strings.Contains(document, `"com.example.v1.Widget"`); has != want {
			t.Errorf("%s: OpenAPI v2 contains Widget: %t", config.Host, has)
		}
	}
	if got := getStatus(t, empty, "/openapi/v3/apis/example.com/v1"); got != http.StatusNotFound {
		t.Errorf("a workspace without definitions: got %d", got)
	}
}

func testImmediateDiscovery(t *testing.T, config *rest.Config) {
	for i := range 20 {
		group := fmt.Sprintf("g%d.example.com", i)
		createDefinition(t, config, newDefinition(group, "things", "Thing", []string{"v1"}))
		for _, path := range []string{"/apis/" + group + "/v1", "/apis/" + group, "/openapi/v3/apis/" + group + "/v1"} {
			if got := getStatus(t, config, path); got != http.StatusOK {
				t.Errorf("GET %s: got %d", path, got)
			}
		}
	}
}

func testRESTMappingOfDefinitions(t *testing.T, config *rest.Config) {
	cached := memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(config))
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	kind := schema.GroupKind{Group: "example.com", Kind: "Late"}
	if _, err := mapper.RESTMapping(kind); err == nil {
		t.Error("a kind is mapped before its definition exists")
	}
	createDefinition(t, config, newDefinition("example.com", "lates", "Late", []string{"v1"}))
	mapper.Reset()
	mapping, err := mapper.RESTMapping(kind)
	if err != nil || mapping.Resource != (schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "lates"}) {
		t.Errorf("got %v, %v", mapping, err)
	}
	got, err := restmapper.NewShortcutExpander(mapper, cached, nil).ResourceFor(schema.GroupVersionResource{Resource: "lax"})
	if err != nil || got.Resource != "lates" {
		t.Errorf("a short name is mapped to %v, %v", got, err)
	}
}

func testTerminatingDefinition(t *testing.T, config *rest.Config) {
	createDefinition(t, config, newDefinition("example.com", "goings", "Going", []string{"v1"}))
	going := dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "goings"}).Namespace("default")
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Going", "metadata": map[string]any{"name": "stays", "finalizers": []any{"example.com/stays"}},
	}}
	if _, err := going.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	definitions := clientset.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions()
	if err := definitions.Delete(t.Context(), "goings.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the definition terminates", func(ctx context.Context) error {
		got, err := definitions.Get(ctx, "goings.example.com", metav1.GetOptions{})
		if err == nil && !apihelpers.IsCRDConditionTrue(got, apiextensionsv1.Terminating) {
			err = fmt.Errorf("its conditions are %v", got.Status.Conditions)
		}
		return err
	})
	var resources metav1.APIResourceList
	getJSON(t, config, "/apis/example.com/v1", &resources)
	if got := resources.APIResources[0].Verbs; !slices.Equal(got, metav1.Verbs{"delete", "deletecollection", "get", "list", "watch"}) {
		t.Errorf("while it terminates the verbs are %v", got)
	}
	if _, err := going.Patch(t.Context(), "stays", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the definition is gone", func(ctx context.Context) error {
		if _, err := definitions.Get(ctx, "goings.example.com", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %w, want not found", err)
		}
		return nil
	})
	if got := getStatus(t, config, "/apis/example.com"); got != http.StatusNotFound {
		t.Errorf("the group of a deleted definition: got %d", got)
	}
}

func testExplainDefinitions(t *testing.T, first, second *rest.Config) {
	expectFields(t, first, schema.GroupVersionKind{Group: "example.com", Version: "v1beta1", Kind: "Widget"}, "spec", "color")
	expectFields(t, second, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}, "spec", "size")
	document, err := discovery.NewDiscoveryClientForConfigOrDie(second).OpenAPISchema() // protobuf
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, definition := range document.GetDefinitions().GetAdditionalProperties() {
		found = found || definition.GetName() == "com.example.v1.Gadget"
	}
	if !found {
		t.Error("OpenAPI v2 in protobuf has no Gadget")
	}
	response := get(t, second, "/openapi/v3/apis/example.com/v1", "Accept", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf")
	if got := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || got != "application/com.github.proto-openapi.spec.v3.v1.0+protobuf" || !strings.Contains(response.body, "Gadget") {
		t.Errorf("OpenAPI v3 in protobuf: %d %s", response.StatusCode, got)
	}
}

func testSharedDocuments(t *testing.T, shard *shardtesting.Shard, one, other *rest.Config) {
	requests := map[string]string{
		"/apis": aggregated, "/apis/example.com/v1": "application/json", "/openapi/v3": "application/json",
		"/openapi/v3/apis/example.com/v1": "application/json", "/openapi/v2": "application/json",
	}
	tags := map[string]string{}
	for path, accept := range requests {
		tags[path] = get(t, one, path, "Accept", accept).Header.Get("ETag")
	}
	before := shard.Server.DocumentStats()
	for path, accept := range requests {
		response := get(t, other, path, "Accept", accept)
		if got := response.Header.Get("ETag"); response.StatusCode != http.StatusOK || got != tags[path] {
			t.Errorf("%s: %d, tag %q, in a workspace with the same definition %q", path, response.StatusCode, got, tags[path])
		}
	}
	if after := shard.Server.DocumentStats(); after != before {
		t.Errorf("documents were made again: %+v, before %+v", after, before)
	}
}

func testNotModified(t *testing.T, config *rest.Config) {
	for path, accept := range map[string]string{
		"/api": aggregated, "/apis": aggregated,
		"/openapi/v3": "application/json", "/openapi/v3/apis/example.com/v1": "application/json", "/openapi/v2": "application/json",
	} {
		tag := get(t, config, path, "Accept", accept).Header.Get("ETag")
		again := get(t, config, path, "Accept", accept, "If-None-Match", tag)
		if again.StatusCode != http.StatusNotModified || again.body != "" {
			t.Errorf("%s: second request with %s: got %d", path, tag, again.StatusCode)
		}
	}
}

func testOutdatedHash(t *testing.T, config *rest.Config) {
	for _, path := range []string{"/openapi/v3/apis/example.com/v1", "/openapi/v3/api/v1"} {
		tag := get(t, config, path).Header.Get("ETag")
		response := get(t, config, path+"?hash=ABC") // follows redirects
		if response.StatusCode != http.StatusOK || response.Header.Get("ETag") != tag || response.Request.URL.Query().Get("hash") != strings.Trim(tag, `"`) {
			t.Errorf("%s: got %d from %s", path, response.StatusCode, response.Request.URL)
		}
	}
}

// TestDefinitionOfHiddenResource covers shards, which are built in and served in root only: in other logical clusters a
// definition may use the name.
func TestDefinitionOfHiddenResource(t *testing.T) {
	shard := sharedShard(t)
	shard.NewWorkspace(t, "root", "potter")
	config := shardtesting.At(shard.Admin(t), "root:potter")
	createDefinition(t, config, newDefinition("core.kcp.io", "shards", "Shard", []string{"v1alpha1"}, "glaze"))
	expectFields(t, config, schema.GroupVersionKind{Group: "core.kcp.io", Version: "v1alpha1", Kind: "Shard"}, "spec", "glaze")
	expectFields(t, config, schema.GroupVersionKind{Group: "core.kcp.io", Version: "v1alpha1", Kind: "LogicalCluster"}, "status", "phase")
	for _, legacy := range []bool{true, false} {
		lines := strings.Join(listDiscovery(t, config, legacy), "\n")
		if !strings.Contains(lines, "core.kcp.io/v1alpha1 shards Shard namespaced=true") || !strings.Contains(lines, "core.kcp.io/v1alpha1 logicalclusters ") {
			t.Errorf("unaggregated %t: got %s", legacy, lines)
		}
	}
	if got := getStatus(t, config, "/apis/core.kcp.io/v1alpha1/namespaces/default/shards"); got != http.StatusOK {
		t.Errorf("listing what the definition brings: got %d", got)
	}
}

// TestDefinitionOfGatedResource covers cache.kcp.io, whose objects have the storage keys of a definition of that name:
// a stored object of another type would prevent all of them from being served once the gate is enabled.
func TestDefinitionOfGatedResource(t *testing.T) {
	shard := shardtesting.Start(t)
	shard.NewWorkspace(t, "root", "patient")
	config := shardtesting.At(shard.Admin(t), "root:patient")
	createDefinition(t, config, newDefinition("cache.kcp.io", "clustercachedresources", "ClusterCachedResource", []string{"v9"}, "bomb"))
	if got := getStatus(t, config, "/apis/cache.kcp.io/v9/namespaces/default/clustercachedresources"); got != http.StatusNotFound {
		t.Errorf("listing what the definition brings: got %d", got)
	}
	for _, legacy := range []bool{true, false} {
		if lines := strings.Join(listDiscovery(t, config, legacy), "\n"); strings.Contains(lines, "cache.kcp.io") {
			t.Errorf("unaggregated %t: got %s", legacy, lines)
		}
	}
	if err := shard.Stop(); err != nil {
		t.Fatal(err)
	}
	shard = shardtesting.StartIn(t, shard.Directory, func(o *options.Options) { o.FeatureGates = []string{options.GateCacheAPIs + "=true"} })
	config = shardtesting.At(shard.Admin(t), "root:patient")
	if got := getStatus(t, config, "/apis/cache.kcp.io/v1alpha1/clustercachedresources"); got != http.StatusOK {
		t.Errorf("listing what the gate brings: got %d", got)
	}
}

// TestDocumentCacheIsShared covers wall W2: many workspaces with the same definitions share one set of documents.
func TestDocumentCacheIsShared(t *testing.T) {
	const workspaces, workers = 40, 8
	shard := shardtesting.Start(t)
	read := func(name string) {
		shard.NewWorkspace(t, "root", name)
		config := shardtesting.At(shard.Admin(t), "root:"+name)
		for _, plural := range []string{"apples", "pears", "plums"} {
			createDefinition(t, config, newDefinition("fruit.example.com", plural, strings.ToUpper(plural[:1])+plural[1:len(plural)-1], []string{"v1", "v1beta1"}, "color", "size"))
		}
		for path, accept := range map[string]string{
			"/apis": aggregated, "/apis/fruit.example.com/v1": "application/json", "/openapi/v3": "application/json",
			"/openapi/v3/apis/fruit.example.com/v1": "application/json", "/openapi/v2": "application/json",
		} {
			if got := get(t, config, path, "Accept", accept); got.StatusCode != http.StatusOK {
				t.Errorf("%s: GET %s: got %d: %s", name, path, got.StatusCode, got.body)
			}
		}
	}
	read("first")
	before := shard.Server.DocumentStats()
	var all sync.WaitGroup
	names := make(chan string, workspaces)
	for i := range workspaces {
		names <- fmt.Sprintf("more-%d", i)
	}
	close(names)
	for range workers {
		all.Go(func() {
			for name := range names {
				read(name)
			}
		})
	}
	all.Wait()
	if after := shard.Server.DocumentStats(); after != before {
		t.Errorf("after %d more workspaces %+v, after one %+v", workspaces, after, before)
	}
}
