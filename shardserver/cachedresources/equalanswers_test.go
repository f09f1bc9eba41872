package cachedresources_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

var spices = schema.GroupVersionResource{Group: "spices.example.com", Version: "v1", Resource: "spices"}

// testEqualAnswers: the definition of the provider has other columns, versions and fields than the schema that its export
// publishes, and stores another version. Consumers read what is published, on the shard of the provider and on others.
func (s *shardedEnv) testEqualAnswers(t *testing.T) {
	in := shardtesting.In(t.Context(), s.provider)
	s.defineSpices(t)
	consumers := map[*shardtesting.Shard]string{}
	for name, shard := range map[string]*shardtesting.Shard{"spices-root": s.root, "spices-alpha": s.shard, "spices-beta": s.consumers} {
		consumers[shard] = s.createWorkspace(t, name, shard)
		bind(t, shard, consumers[shard], s.provider, "spices")
	}
	wait := func(column string) {
		t.Helper()
		for shard, cluster := range consumers {
			shardtesting.Eventually(t, "the table with the column "+column, func(context.Context) error {
				_, table := shardtesting.Send(t, shard.Admin(t), http.MethodGet, "/clusters/"+cluster+"/apis/spices.example.com/v1/spices", "", "Accept", asTable)
				if !strings.Contains(table, `"name":"`+column+`"`) || !strings.Contains(table, `"name":"pepper"`) {
					return fmt.Errorf("got %s", table)
				}
				return nil
			})
		}
	}
	wait("Heat")
	s.compareAnswers(t, consumers)

	// Consumers get the next schema of the export, and watches with the former one end.
	events, err := s.dynamicClient(t, s.shard.Admin(t), "/clusters/"+consumers[s.shard]).Resource(spices).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	next := spiceSchema("next", "Origin", ".spec.origin")
	if err := s.c.Create(in, next); err != nil {
		t.Fatal(err)
	}
	_, export := newExport("spices", "")
	patch := `[{"op":"replace","path":"/spec/resources/0/schema","value":"` + next.Name + `"}]`
	if err := s.c.Patch(in, export, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	for range events.ResultChan() { // until it is closed
	}
	wait("Origin")
	s.compareAnswers(t, consumers)
	for shard, cluster := range consumers {
		binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "spices"}}
		if err := shard.Client(t, shard.Admin(t)).Delete(shardtesting.In(t.Context(), cluster), binding); err != nil {
			t.Fatal(err)
		}
	}
}

const asTable = "application/json;as=Table;g=meta.k8s.io;v=v1"

// compareAnswers compares what consumers on all shards get, in their own logical cluster, in that of the slice and in that of the export.
func (s *shardedEnv) compareAnswers(t *testing.T, consumers map[*shardtesting.Shard]string) {
	t.Helper()
	const list, asJSON = "/apis/spices.example.com/v1/spices", "application/json"
	for name, request := range map[string]struct{ path, accept, want, refused string }{
		"table":                         {list, asTable, `"columnDefinitions"`, `"name":"Ready"`},
		"table of one object":           {list + "/pepper", asTable, `"columnDefinitions"`, `"name":"Ready"`},
		"table in a watch":              {list + "?watch=1&resourceVersion=0&timeoutSeconds=1", asTable, `"ADDED"`, `"name":"Ready"`},
		"list":                          {list, asJSON, `"origin":"unknown"`, `"internal"`},
		"object":                        {list + "/pepper", asJSON, `"heat":"mild"`, `"internal"`},
		"metadata":                      {list + "/pepper", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", `"pepper"`, `"spec"`},
		"version that is not published": {"/apis/spices.example.com/v2/spices", asJSON, "404", `"items"`},
		"discovery":                     {"/apis/spices.example.com/v1", asJSON, `"spices"`, "spices/status"},
		"discovery of the group":        {"/apis/spices.example.com", asJSON, `"spices.example.com/v1"`, `"spices.example.com/v2"`},
		"OpenAPI":                       {"/openapi/v3/apis/spices.example.com/v1", asJSON, `"heat"`, `"internal"`},
	} {
		for from, prefix := range map[string]func(cluster string) string{
			"the workspace": func(cluster string) string { return "/clusters/" + cluster },
			"the slice's view": func(cluster string) string {
				return "/services/replication/" + s.provider + "/spices/clusters/" + cluster
			},
			"the export's view": func(cluster string) string {
				return "/services/apiexport/" + s.provider + "/spices/clusters/" + cluster
			},
			"the export's view of *": func(string) string { return "/services/apiexport/" + s.provider + "/spices/clusters/*" },
		} {
			if strings.HasSuffix(from, "*") && strings.Contains(request.path, "/pepper") || from != "the workspace" && strings.Contains(request.path, "watch") {
				continue // objects have no URL for all consumers; watches take their time
			}
			answers := map[string][]string{}
			for shard, cluster := range consumers {
				config := shard.Admin(t)
				_, body := shardtesting.Send(t, config, http.MethodGet, prefix(cluster)+request.path, "", "Accept", request.accept)
				answer := normalize(t, body, cluster)
				if !strings.Contains(answer, request.want) || strings.Contains(answer, request.refused) {
					t.Errorf("%s in %s of %s: got %s", name, from, config.Host, answer)
				}
				answers[answer] = append(answers[answer], config.Host)
			}
			if len(answers) > 1 {
				t.Errorf("%s in %s: shards answer differently:\n%s", name, from, strings.Join(slices.Sorted(maps.Keys(answers)), "\n"))
			}
		}
	}
}

// normalize returns JSON documents without what differs between shards: resource versions, managed fields, the logical cluster.
func normalize(t *testing.T, answer, cluster string) string {
	t.Helper()
	if !strings.HasPrefix(answer, "{") {
		return answer
	}
	var normalized strings.Builder
	for decoder := json.NewDecoder(strings.NewReader(answer)); decoder.More(); {
		var document any
		if err := decoder.Decode(&document); err != nil {
			t.Fatalf("%v: %s", err, answer)
		}
		dropKeys(document, "resourceVersion", "managedFields")
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		normalized.WriteString(strings.ReplaceAll(string(text), cluster, "<cluster>") + "\n")
	}
	return normalized.String()
}

func dropKeys(document any, keys ...string) {
	switch document := document.(type) {
	case map[string]any:
		for _, key := range keys {
			delete(document, key)
		}
		for _, value := range document {
			dropKeys(value, keys...)
		}
	case []any:
		for _, value := range document {
			dropKeys(value, keys...)
		}
	}
}

// defineSpices creates the definition, an object, and what publishes it.
func (s *shardedEnv) defineSpices(t *testing.T) {
	t.Helper()
	in := shardtesting.In(t.Context(), s.provider)
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	version := func(name string, stored bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: stored,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"spec":   {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"heat": text, "internal": text, "origin": text}},
				"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"ready": text}},
			}}},
			Subresources:             &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Ready", Type: "string", JSONPath: ".status.ready"}},
		}
	}
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: spices.GroupResource().String()}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: spices.Group, Scope: apiextensionsv1.ClusterScoped,
		Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "spices", Singular: "spice", Kind: "Spice", ListKind: "SpiceList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", false), version("v2", true)},
	}}
	cachedResource := &cachev1alpha1.ClusterCachedResource{ObjectMeta: metav1.ObjectMeta{Name: "spices"}, Spec: cachev1alpha1.ClusterCachedResourceSpec{
		GroupVersionResource: cachev1alpha1.GroupVersionResource{Group: spices.Group, Version: spices.Version, Resource: spices.Resource},
	}}
	for _, object := range []client.Object{definition, cachedResource} {
		if err := s.c.Create(in, object); err != nil {
			t.Fatal(err)
		}
	}
	pepper := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "spices.example.com/v2", "kind": "Spice",
		"metadata": map[string]any{"name": "pepper"}, "spec": map[string]any{"heat": "mild", "internal": "recipe"}}}
	provider := s.dynamicClient(t, s.shard.Admin(t), "/clusters/"+s.provider)
	shardtesting.Eventually(t, "spices to be served", func(ctx context.Context) error {
		_, err := provider.Resource(spices.GroupResource().WithVersion("v2")).Create(ctx, pepper, metav1.CreateOptions{})
		return err
	})
	shardtesting.Eventually(t, "the identity of the cached resource", func(ctx context.Context) error {
		err := s.c.Get(shardtesting.In(ctx, s.provider), client.ObjectKeyFromObject(cachedResource), cachedResource)
		if err == nil && cachedResource.Status.IdentityHash == "" {
			err = fmt.Errorf("status %+v", cachedResource.Status)
		}
		return err
	})
	_, export := newExport("spices", cachedResource.Status.IdentityHash)
	published := spiceSchema("first", "Heat", ".spec.heat")
	entry := &export.Spec.Resources[0]
	entry.Name, entry.Group, entry.Schema = spices.Resource, spices.Group, published.Name
	slice := &cachev1alpha1.ClusterCachedResourceEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "spices"}, Spec: cachev1alpha1.ClusterCachedResourceEndpointSliceSpec{
		ClusterCachedResource: cachev1alpha1.ClusterCachedResourceReference{Name: "spices"}, APIExport: cachev1alpha1.ExportBindingReference{Name: "spices"},
	}}
	for _, object := range []client.Object{published, export, slice} {
		if err := s.c.Create(in, object); err != nil {
			t.Fatal(err)
		}
	}
}

// spiceSchema returns a schema with one version, fewer fields than the definition has, a default, and one column.
func spiceSchema(prefix, column, path string) *apisv1alpha1.APIResourceSchema {
	published := shardtesting.NewSchema(prefix, spices.GroupResource(), "Spice")
	published.Spec.Scope = apiextensionsv1.ClusterScoped
	version := &published.Spec.Versions[0]
	version.Schema = runtime.RawExtension{Raw: []byte(`{"type":"object","properties":{"spec":{"type":"object","properties":{"heat":{"type":"string"},"origin":{"type":"string","default":"unknown"}}}}}`)}
	version.Subresources = apiextensionsv1.CustomResourceSubresources{}
	version.AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{{Name: column, Type: "string", JSONPath: path}}
	return published
}
