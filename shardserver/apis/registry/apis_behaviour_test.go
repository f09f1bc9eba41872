package registry_test

import (
	"encoding/json"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

func parseFields(t *testing.T, text string) fields {
	t.Helper()
	var content fields
	if err := yaml.Unmarshal([]byte(text), &content); err != nil {
		t.Fatal(err)
	}
	return content
}

func getObject(t *testing.T, client dynamic.ResourceInterface, name string) *unstructured.Unstructured {
	t.Helper()
	obj, err := client.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

// nestedJSON returns a field as JSON.
func nestedJSON(t *testing.T, obj *unstructured.Unstructured, path ...string) string {
	t.Helper()
	encoded, err := json.Marshal(nestedField(t, obj, path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}

func TestVersionConversion(t *testing.T) {
	client := newClient(t, newClusterName("versions"))
	createObject(t, client.Resource(apiExportsV1), newObject(apiExportsV1, "old", parseFields(t,
		`spec: {latestResourceSchemas: [v1.widgets.example.com], permissionClaims: [{resource: pods, resourceSelector: [{name: a}]}]}`)))
	stored := getObject(t, client.Resource(apiExports), "old")
	if got := nestedJSON(t, stored, "spec", "resources"); got != `[{"group":"example.com","name":"widgets","schema":"v1.widgets.example.com","storage":{"crd":{}}}]` {
		t.Errorf("resources in v1alpha2: %s", got)
	}
	if got := nestedJSON(t, stored, "spec", "permissionClaims"); got != `[{"group":"","identityHash":"","resource":"pods","verbs":["*"]}]` {
		t.Errorf("claims in v1alpha2: %s", got)
	}
	if got := nestedJSON(t, getObject(t, client.Resource(apiExportsV1), "old"), "spec", "permissionClaims"); got != `[{"resource":"pods","resourceSelector":[{"name":"a"}]}]` {
		t.Errorf("claims in v1alpha1: %s", got)
	}

	createObject(t, client.Resource(apiBindings), newObject(apiBindings, "new", parseFields(t,
		`spec: {reference: {export: {name: e}}, permissionClaims: [{resource: pods, verbs: [get], selector: {matchAll: true}, state: Accepted}]}`)))
	if got := nestedJSON(t, getObject(t, client.Resource(apiBindingsV1), "new"), "spec", "permissionClaims"); got != `[{"all":true,"resource":"pods","state":"Accepted"}]` {
		t.Errorf("claims of the binding in v1alpha1: %s", got)
	}
	// A v1alpha1 client does not remove fields that its version lacks.
	if _, err := client.Resource(apiBindingsV1).Patch(t.Context(), "new", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := nestedJSON(t, getObject(t, client.Resource(apiBindings), "new"), "spec", "permissionClaims"); got != `[{"group":"","identityHash":"","resource":"pods","selector":{"matchAll":true},"state":"Accepted","verbs":["get"]}]` {
		t.Errorf("claims of the binding after a patch in v1alpha1: %s", got)
	}
}

func TestManagedFieldsAcrossVersions(t *testing.T) {
	client := newClient(t, newClusterName("owners"))
	options := metav1.ApplyOptions{FieldManager: "tester"}
	first := newObject(apiExports, "x", parseFields(t, `spec: {resources: [{name: widgets, group: example.com, schema: v1.widgets.example.com}], permissionClaims: [{resource: pods, verbs: [get]}]}`))
	if _, err := client.Resource(apiExports).Apply(t.Context(), "x", first, options); err != nil {
		t.Fatal(err)
	}
	other := newObject(apiExportsV1, "x", parseFields(t, `metadata: {labels: {from: v1alpha1}}`))
	other.SetName("x")
	if _, err := client.Resource(apiExportsV1).Apply(t.Context(), "x", other, metav1.ApplyOptions{FieldManager: "other"}); err != nil {
		t.Fatal(err)
	}
	first = newObject(apiExports, "x", parseFields(t, `spec: {resources: [{name: gadgets, group: example.com, schema: v1.gadgets.example.com}], permissionClaims: [{resource: pods, verbs: [get, list]}]}`))
	applied, err := client.Resource(apiExports).Apply(t.Context(), "x", first, options)
	if err != nil {
		t.Fatal(err)
	}
	if got := nestedJSON(t, applied, "spec", "resources"); got != `[{"group":"example.com","name":"gadgets","schema":"v1.gadgets.example.com","storage":{"crd":{}}}]` {
		t.Errorf("resources: %s", got)
	}
	if got := nestedJSON(t, applied, "spec", "permissionClaims"); got != `[{"group":"","identityHash":"","resource":"pods","verbs":["get","list"]}]` {
		t.Errorf("claims: %s", got)
	}
	if applied.GetLabels()["from"] != "v1alpha1" {
		t.Errorf("labels: %v", applied.GetLabels())
	}
}

func TestStatusIsServedInBothVersions(t *testing.T) {
	client := newClient(t, newClusterName("status"))
	created := createObject(t, client.Resource(apiBindings), newObject(apiBindings, "x", parseFields(t, `spec: {reference: {export: {name: e}}}`)))
	unstructured.RemoveNestedField(created.Object, "status")
	if err := unstructured.SetNestedField(created.Object, "Binding", "status", "phase"); err != nil {
		t.Fatal(err)
	}
	updated, err := client.Resource(apiBindings).UpdateStatus(t.Context(), created, updateOptions)
	if err != nil || nestedJSON(t, updated, "status", "phase") != `"Binding"` || updated.GetGeneration() != 1 {
		t.Fatalf("%v, %v", updated, err)
	}
	patched, err := client.Resource(apiBindingsV1).Patch(t.Context(), "x", types.MergePatchType, []byte(`{"status":{"phase":"Bound"},"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}, "status")
	if err != nil || nestedJSON(t, patched, "status", "phase") != `"Bound"` || len(patched.GetLabels()) != 0 {
		t.Fatalf("%v, %v", patched, err)
	}
	if got := nestedJSON(t, getObject(t, client.Resource(apiBindings), "x"), "status", "phase"); got != `"Bound"` {
		t.Errorf("phase %s", got)
	}
}

func TestTablesOfBothVersions(t *testing.T) {
	cluster := newClusterName("tables")
	client := newClient(t, cluster)
	createObject(t, client.Resource(apiExports), newObject(apiExports, "x", fields{}))
	createObject(t, client.Resource(apiBindings), newObject(apiBindings, "x", parseFields(t, `spec: {reference: {export: {name: e}}}`)))
	createObject(t, client.Resource(apiSlices), newObject(apiSlices, "x", parseFields(t, `spec: {export: {name: e}, partition: p}`)))
	for path, want := range map[string][]string{
		"v1alpha2/apiexports":              {"Name", "Resources", "Age"},
		"v1alpha1/apiexports":              {"Name", "Resources", "Age", "Ready"},
		"v1alpha2/apibindings":             {"Name", "Export", "Age", "Ready"},
		"v1alpha1/apibindings":             {"Name", "Export", "Age", "Ready"},
		"v1alpha1/apiexportendpointslices": {"Name", "Export", "Partition", "Age"},
	} {
		body := getRaw(t, "/clusters/"+cluster+"/apis/apis.kcp.io/"+path, "application/json;as=Table;v=v1;g=meta.k8s.io")
		var table metav1.Table
		if err := json.Unmarshal(body, &table); err != nil || len(table.Rows) != 1 {
			t.Fatalf("%s: %s, %v", path, body, err)
		}
		var names []string
		for _, column := range table.ColumnDefinitions {
			names = append(names, column.Name)
		}
		if !slices.Equal(names, want) || len(table.Rows[0].Cells) != len(want) {
			t.Errorf("%s: columns %v, cells %v", path, names, table.Rows[0].Cells)
		}
	}
}

func TestSchemaVersionsArePreserved(t *testing.T) {
	client := newClient(t, newClusterName("schemas")).Resource(apiSchemas)
	const name = "v1.widgets.example.com"
	created := createObject(t, client, newObject(apiSchemas, name, parseFields(t,
		schemaSpec(`, versions: [{name: v1, storage: true, schema: {type: object, properties: {b: {type: string}, a: {x-unknown: kept}}}}]`))))
	if got := nestedJSON(t, created, "spec", "versions"); got != `[{"name":"v1","schema":{"properties":{"a":{"x-unknown":"kept"},"b":{"type":"string"}},"type":"object"},"served":true,"storage":true,"subresources":{}}]` {
		t.Errorf("versions: %s", got)
	}
	if got := nestedJSON(t, created, "spec", "nameValidation"); got != `"DNS1123Subdomain"` {
		t.Errorf("name validation: %s", got)
	}
	// A schema with another order of keys is equal.
	applied, err := client.Apply(t.Context(), name, newObject(apiSchemas, name, parseFields(t,
		schemaSpec(`, versions: [{name: v1, served: true, storage: true, schema: {properties: {a: {x-unknown: kept}, b: {type: string}}, type: object}}]`))), metav1.ApplyOptions{FieldManager: "tester", Force: true})
	if err != nil {
		t.Fatal(err)
	}
	if applied.GetGeneration() != 1 {
		t.Errorf("generation %d", applied.GetGeneration())
	}
}
