package crdhandler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// wantInvalid reports an error that is not Invalid, or has another cause than this field.
func wantInvalid(t *testing.T, err error, field string) {
	t.Helper()
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		t.Errorf("got %v, want Invalid", err)
		return
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == field {
			return
		}
	}
	t.Errorf("got %v, want a cause with the field %s", err, field)
}

func testRefusedPaths(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	definition := newDefinition("example.com")
	version := &definition.Spec.Versions[0]
	version.AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{
		{Name: "Size", Type: "string", JSONPath: ".spec.size"}, {Name: "Any", Type: "string", JSONPath: ".spec..size"},
	}
	_, err := w.definitions().Create(t.Context(), definition, metav1.CreateOptions{})
	wantInvalid(t, err, "spec.versions[0].additionalPrinterColumns[1].jsonPath")

	// Stock validation looks for a property of that name, and finds it.
	version.AdditionalPrinterColumns = nil
	version.Schema.OpenAPIV3Schema.Properties["spec"].Properties["."] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	version.SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".spec.."}}
	_, err = w.definitions().Create(t.Context(), definition, metav1.CreateOptions{})
	wantInvalid(t, err, "spec.versions[0].selectableFields[0].jsonPath")
}

// testStoredPaths stores a definition that the server refuses today: it is served, its column is not evaluated, and it can be updated.
func testStoredPaths(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	definition := newDefinition("example.com")
	definition.Spec.Versions[0].AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{
		{Name: "Any", Type: "string", JSONPath: ".spec.xsize"}, {Name: "Size", Type: "string", JSONPath: ".spec.size"},
	}
	w.define(definition)
	w.create(newWidget("one", map[string]any{"size": "big"}))
	for _, key := range shard.Keys(t, "/customresourcedefinitions/") {
		if strings.Contains(key, "/"+w.name+"/") {
			shard.ReplaceInKey(t, key, ".spec.xsize", ".spec..size") // of the same length, for any encoding
		}
	}
	shardtesting.Eventually(t, "the column is not evaluated", func(context.Context) error {
		_, body, _ := w.doRaw(http.MethodGet, widgetsPath, "", "application/json;as=Table;v=v1;g=meta.k8s.io", "")
		var table metav1.Table
		if err := json.Unmarshal([]byte(body), &table); err != nil || len(table.Rows) != 1 || len(table.ColumnDefinitions) != 3 {
			return fmt.Errorf("the table is %s, %w", body, err)
		}
		if cells := table.Rows[0].Cells; cells[1] != nil || cells[2] != "big" || !strings.Contains(table.ColumnDefinitions[1].Description, "Not evaluated") {
			return fmt.Errorf("the table is %s", body)
		}
		return nil
	})
	stored, err := w.definitions().Get(t.Context(), definition.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored.Spec.Versions[0].Deprecated = true
	updated, err := w.definitions().Update(t.Context(), stored, metav1.UpdateOptions{})
	if err != nil || updated.Spec.Versions[0].AdditionalPrinterColumns[0].JSONPath != ".spec..size" {
		t.Fatalf("an update of another field: %v, %v", updated, err)
	}
	updated.Spec.Versions[0].AdditionalPrinterColumns[0].JSONPath = ".spec..colour"
	_, err = w.definitions().Update(t.Context(), updated, metav1.UpdateOptions{})
	wantInvalid(t, err, "spec.versions[0].additionalPrinterColumns[0].jsonPath")
}

// testPatchLimits sends patches whose work is more than their size: they are refused. One that fails while it is applied has no details.
func testPatchLimits(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	configMaps := "/api/v1/namespaces/default/configmaps"
	if status, body, _ := w.doRaw(http.MethodPost, configMaps, acceptJSON, acceptJSON, `{"metadata":{"name":"a"},"data":{"k":"`+strings.Repeat("x", 1000)+`"}}`); status != http.StatusCreated {
		t.Fatalf("%d %s", status, body)
	}
	operations := func(n int, one string) string { // # is the number of the operation
		all := make([]string, n)
		for i := range all {
			all[i] = strings.ReplaceAll(one, "#", fmt.Sprint(i))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	for name, test := range map[string]struct {
		contentType, patch string
		status             int
		text               string
	}{
		"many operations": {"application/json-patch+json", operations(1001, `{"op":"test","path":"/kind","value":"ConfigMap"}`), http.StatusRequestEntityTooLarge, "1000 operations"},
		"many copies":     {"application/json-patch+json", operations(13, `{"op":"copy","from":"/data","path":"/data/k#"}`), http.StatusUnprocessableEntity, "the server rejected our request"},
		"a long list":     {"application/strategic-merge-patch+json", `{"metadata":{"finalizers":` + operations(1001, `"example.com/x"`) + `}}`, http.StatusRequestEntityTooLarge, "1000 elements"},
		"many owners": {"application/merge-patch+json", `{"metadata":{"ownerReferences":` +
			operations(1001, `{"apiVersion":"v1","kind":"ConfigMap","name":"b","uid":"#"}`) + `}}`, http.StatusUnprocessableEntity, "metadata.ownerReferences"},
	} {
		if status, body, _ := w.doRaw(http.MethodPatch, configMaps+"/a", test.contentType, acceptJSON, test.patch); status != test.status || !strings.Contains(body, test.text) {
			t.Errorf("%s: %d %.300s", name, status, body)
		}
	}
	if status, body, _ := w.doRaw(http.MethodGet, configMaps+"?labelSelector=k+in+("+strings.Repeat("v,", 20000)+"v)", "", acceptJSON, ""); status != http.StatusBadRequest {
		t.Errorf("a long selector: %d %.300s", status, body)
	}
}
