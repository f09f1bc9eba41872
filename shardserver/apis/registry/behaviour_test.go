package registry_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

type fields = map[string]any

func nestedField(t *testing.T, obj *unstructured.Unstructured, path ...string) any {
	t.Helper()
	value, _, err := unstructured.NestedFieldCopy(obj.Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestStatusOnCreate(t *testing.T) {
	created := createObject(t, newClient(t, newClusterName("create")).Resource(workspaces), newObject(workspaces, "a", fields{
		"status": fields{"phase": "Ready", "initializers": []any{"root:universal"}},
	}))
	if got := nestedField(t, created, "status"); !reflect.DeepEqual(got, fields{"phase": "Scheduling"}) {
		t.Errorf("status = %v", got)
	}
	if got := nestedField(t, created, "spec"); !reflect.DeepEqual(got, fields{}) {
		t.Errorf("spec = %v, want the default {}", got)
	}
	if created.GetGeneration() != 1 {
		t.Errorf("generation = %d", created.GetGeneration())
	}
}

func TestStatusSubresource(t *testing.T) {
	client := newClient(t, newClusterName("apart")).Resource(workspaces)
	obj := createObject(t, client, newObject(workspaces, "a", fields{"spec": fields{"cluster": "x"}}))

	change := func(obj *unstructured.Unstructured) {
		obj.SetLabels(map[string]string{"region": "eu"})
		obj.Object["spec"] = fields{"cluster": "x", "URL": "https://example.test"}
		obj.Object["status"] = fields{"phase": "Ready"}
	}
	change(obj)
	updated, err := client.Update(t.Context(), obj, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if nestedField(t, updated, "status", "phase") != "Scheduling" || nestedField(t, updated, "spec", "URL") != "https://example.test" || updated.GetGeneration() != 2 {
		t.Errorf("the main resource writes spec and metadata alone, and counts generations: %v", updated.Object)
	}

	updated.SetLabels(nil)
	updated.Object["spec"] = fields{}
	updated.Object["status"] = fields{"phase": "Ready"}
	updatedStatus, err := client.UpdateStatus(t.Context(), updated, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if nestedField(t, updatedStatus, "status", "phase") != "Ready" || nestedField(t, updatedStatus, "spec", "cluster") != "x" ||
		updatedStatus.GetLabels()["region"] != "eu" || updatedStatus.GetGeneration() != 2 {
		t.Errorf("the status subresource writes the status alone: %v", updatedStatus.Object)
	}
}

func TestServerSideApply(t *testing.T) {
	client := newClient(t, newClusterName("apply")).Resource(workspaces)
	ctx := t.Context()
	if _, err := client.Apply(ctx, "a", newObject(workspaces, "a", fields{"spec": fields{"type": fields{"name": "team", "path": "root"}}}),
		metav1.ApplyOptions{FieldManager: "user"}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ApplyStatus(ctx, "a", newObject(workspaces, "a", fields{"status": fields{"phase": "Ready"}}),
		metav1.ApplyOptions{FieldManager: "system"}); err != nil {
		t.Fatal(err)
	}
	// Another field manager adds a field and keeps those of the first one.
	applied, err := client.Apply(ctx, "a", newObject(workspaces, "a", fields{"spec": fields{"URL": "https://example.test"}}), metav1.ApplyOptions{FieldManager: "scheduler"})
	if err != nil {
		t.Fatal(err)
	}
	if nestedField(t, applied, "spec", "type", "name") != "team" || nestedField(t, applied, "status", "phase") != "Ready" {
		t.Errorf("apply must merge: %v", applied.Object)
	}
	_, err = client.Apply(ctx, "a", newObject(workspaces, "a", fields{"spec": fields{"URL": "https://other.test"}}), metav1.ApplyOptions{FieldManager: "user"})
	if !apierrors.IsConflict(err) {
		t.Errorf("another owner's field must not be taken without force, got %v", err)
	}
	for _, entry := range applied.GetManagedFields() {
		if entry.Manager == "user" && strings.Contains(entry.FieldsV1.GetRawString(), "f:status") {
			t.Errorf("a user of the main resource owns parts of the status: %s", entry.FieldsV1.GetRawString())
		}
	}
}

func TestPatchTypes(t *testing.T) {
	client := newClient(t, newClusterName("patch")).Resource(workspaceTypes)
	createObject(t, client, newObject(workspaceTypes, "a", fields{"spec": fields{"extend": fields{"with": []any{fields{"name": "universal", "path": "root"}}}}}))
	for patchType, patch := range map[types.PatchType]string{
		types.MergePatchType:          `{"spec":{"initializer":true}}`,
		types.JSONPatchType:           `[{"op":"add","path":"/spec/terminator","value":true}]`,
		types.StrategicMergePatchType: `{"metadata":{"labels":{"x":"y"}}}`,
	} {
		if _, err := client.Patch(t.Context(), "a", patchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Errorf("%s: %v", patchType, err)
		}
	}
	got, err := client.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := fields{
		"initializer": true, "terminator": true,
		"extend":                    fields{"with": []any{fields{"name": "universal", "path": "root"}}},
		"defaultChildWorkspaceType": fields{"name": "universal", "path": "root"},
	}
	if !reflect.DeepEqual(nestedField(t, got, "spec"), any(want)) || got.GetLabels()["x"] != "y" || got.GetGeneration() != 3 {
		t.Errorf("after the patches: %v", got.Object)
	}
}

func TestLogicalClusterIsolation(t *testing.T) {
	one, two := newClusterName("one"), newClusterName("two")
	for _, cluster := range []string{one, two} {
		export := newObject(apiExports, "a", parseFields(t, `spec: {resources: [{name: a, group: x.test, schema: v1.a.x.test, storage: {crd: {}}}, {name: b, group: x.test, schema: v1.b.x.test, storage: {crd: {}}},
		{name: c, group: x.test, schema: v1.c.x.test, storage: {crd: {}}}, {name: d, group: x.test, schema: v1.d.x.test, storage: {crd: {}}}]}`))
		createObject(t, newClient(t, cluster).Resource(apiExports), export)
		createObject(t, newClient(t, cluster).Resource(apiBindings), newObject(apiBindings, "a", parseFields(t, `spec: {reference: {export: {path: "root:apis", name: e}}}`)))
		createObject(t, newClient(t, cluster).Resource(logicalClusters), newObject(logicalClusters, "cluster", fields{"spec": fields{"initializers": []any{"root:" + cluster}}}))
	}
	for _, cluster := range []string{one, two} {
		list, err := newClient(t, cluster).Resource(logicalClusters).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=cluster"})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 || !reflect.DeepEqual(nestedField(t, &list.Items[0], "spec", "initializers"), []any{"root:" + cluster}) {
			t.Errorf("cluster %s lists %v", cluster, list.Items)
		}
		if list.Items[0].GetAnnotations()["kcp.io/cluster"] != cluster {
			t.Errorf("annotations = %v", list.Items[0].GetAnnotations())
		}
	}
	if err := newClient(t, one).Resource(logicalClusters).Delete(t.Context(), "cluster", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := newClient(t, two).Resource(logicalClusters).Get(t.Context(), "cluster", metav1.GetOptions{}); err != nil {
		t.Errorf("deleting in one logical cluster reached another: %v", err)
	}
}

func TestUpdateRequiresResourceVersion(t *testing.T) {
	client := newClient(t, newClusterName("versions")).Resource(workspaces)
	obj := createObject(t, client, newObject(workspaces, "a", nil))
	obj.SetResourceVersion("")
	if _, err := client.Update(t.Context(), obj, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("an update without a resource version must be refused as for a custom resource, got %v", err)
	}
	if _, err := client.Update(t.Context(), newObject(workspaces, "b", fields{}), metav1.UpdateOptions{}); !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
		t.Errorf("an update must not create, got %v", err)
	}
}

func getRaw(t *testing.T, path, accept string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, serverURL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s %v %s", path, response.Status, err, body)
	}
	return body
}

func TestPrinterColumns(t *testing.T) {
	cluster := newClusterName("table")
	labelled := newObject(workspaces, "a", fields{"spec": fields{"type": fields{"name": "team", "path": "root"}, "URL": "https://example.test"}})
	labelled.SetLabels(map[string]string{"region": "eu"})
	createObject(t, newClient(t, cluster).Resource(workspaces), labelled)
	createObject(t, newClient(t, cluster).Resource(workspaceTypes), newObject(workspaceTypes, "a", nil))
	createObject(t, newClient(t, cluster).Resource(shards), newObject(shards, "a", fields{"spec": fields{"baseURL": "https://s.test"}}))
	export := newObject(apiExports, "a", parseFields(t, `spec: {resources: [{name: a, group: x.test, schema: v1.a.x.test, storage: {crd: {}}}, {name: b, group: x.test, schema: v1.b.x.test, storage: {crd: {}}},
		{name: c, group: x.test, schema: v1.c.x.test, storage: {crd: {}}}, {name: d, group: x.test, schema: v1.d.x.test, storage: {crd: {}}}]}`))
	createObject(t, newClient(t, cluster).Resource(apiExports), export)
	createObject(t, newClient(t, cluster).Resource(apiBindings), newObject(apiBindings, "a", parseFields(t, `spec: {reference: {export: {path: "root:apis", name: e}}}`)))
	createObject(t, newClient(t, cluster).Resource(logicalClusters), newObject(logicalClusters, "cluster", nil))

	for path, want := range map[string]string{
		"tenancy.kcp.io/v1alpha1/workspaces":     "Name=a Type=team Region=eu Phase=Scheduling URL=https://example.test Age= Reason= Message=",
		"tenancy.kcp.io/v1alpha1/workspaces/a":   "Name=a Type=team Region=eu Phase=Scheduling URL=https://example.test Age= Reason= Message=",
		"tenancy.kcp.io/v1alpha1/workspacetypes": "Name=a Age=",
		"core.kcp.io/v1alpha1/shards":            "Name=a Region=<nil> URL=https://s.test External URL=<nil> Schedulable=<nil> Ready=Unknown Logical Clusters=<nil> Age=",
		"apis.kcp.io/v1alpha2/apiexports":        "Name=a Resources=a.x.test,b.x.test,c.x.test,1 more Age=",
		"apis.kcp.io/v1alpha2/apibindings":       "Name=a Export=root:apis:e Age= Ready=<nil>",
		"core.kcp.io/v1alpha1/logicalclusters":   "Name=cluster Phase=Scheduling URL=<nil> Age= Workspaces=",
	} {
		var table metav1.Table
		if err := json.Unmarshal(getRaw(t, "/clusters/"+cluster+"/apis/"+path, "application/json;as=Table;v=v1;g=meta.k8s.io"), &table); err != nil {
			t.Fatal(err)
		}
		if len(table.Rows) != 1 || len(table.Rows[0].Cells) != len(table.ColumnDefinitions) {
			t.Errorf("%s: %d rows", path, len(table.Rows))
			continue
		}
		var got []string
		for i, column := range table.ColumnDefinitions {
			cell := fmt.Sprint(table.Rows[0].Cells[i])
			if column.Name == "Age" {
				cell = "" // depends on the time
			}
			got = append(got, column.Name+"="+cell)
		}
		if line := strings.Join(got, " "); line != want {
			t.Errorf("%s prints %q, want %q", path, line, want)
		}
	}
}

func TestDiscovery(t *testing.T) {
	var list metav1.APIResourceList
	if err := json.Unmarshal(getRaw(t, "/clusters/discovery/apis/tenancy.kcp.io/v1alpha1", "application/json"), &list); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, resource := range list.APIResources {
		if resource.Namespaced {
			t.Errorf("%s is namespaced", resource.Name)
		}
		got = append(got, fmt.Sprintf("%s %s %s %v %v", resource.Name, resource.SingularName, resource.Kind, resource.ShortNames, resource.Categories))
	}
	want := []string{
		"workspaceauthenticationconfigurations workspaceauthenticationconfiguration WorkspaceAuthenticationConfiguration [] [kcp]",
		"workspaces workspace Workspace [ws] [kcp]", "workspaces/status  Workspace [] []",
		"workspacetypes workspacetype WorkspaceType [] [kcp]", "workspacetypes/status  WorkspaceType [] []",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("discovery: %q", got)
	}
}

func TestOpenAPIKinds(t *testing.T) {
	var document struct {
		Components struct {
			Schemas map[string]struct {
				Kinds []metav1.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
			}
		}
	}
	if err := json.Unmarshal(getRaw(t, "/clusters/openapi/openapi/v3/apis/tenancy.kcp.io/v1alpha1", "application/json"), &document); err != nil {
		t.Fatal(err)
	}
	workspace, ok := document.Components.Schemas["io.kcp.tenancy.v1alpha1.Workspace"]
	if !ok || !reflect.DeepEqual(workspace.Kinds, []metav1.GroupVersionKind{{Group: "tenancy.kcp.io", Version: "v1alpha1", Kind: "Workspace"}}) {
		t.Errorf("the schema of Workspace lists %v (present: %t)", workspace.Kinds, ok)
	}
}

func TestProtobufFallsBackToJSON(t *testing.T) {
	cluster := newClusterName("protobuf")
	createObject(t, newClient(t, cluster).Resource(workspaces), newObject(workspaces, "a", nil))
	path := "/clusters/" + cluster + "/apis/tenancy.kcp.io/v1alpha1/workspaces/a"
	if body := getRaw(t, path, "application/vnd.kubernetes.protobuf,application/json"); !json.Valid(body) {
		t.Errorf("got %q", body)
	}
	const metadata = ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	body := getRaw(t, path, "application/vnd.kubernetes.protobuf"+metadata+",application/json"+metadata+",application/json")
	if !strings.Contains(string(body), "PartialObjectMetadata") {
		t.Errorf("a client of metadata got %q", body)
	}
}

func TestWatchIsolation(t *testing.T) {
	cluster := newClusterName("watched")
	watched, other := newClient(t, cluster).Resource(workspaces), newClient(t, newClusterName("unwatched")).Resource(workspaces)
	stream, err := watched.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Stop()
	createObject(t, other, newObject(workspaces, "a", nil))
	obj := createObject(t, watched, newObject(workspaces, "a", nil))
	obj.Object["status"] = fields{"phase": "Ready"}
	if _, err := watched.UpdateStatus(t.Context(), obj, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ADDED Workspace " + cluster + " Scheduling", "MODIFIED Workspace " + cluster + " Ready"} {
		select {
		case event := <-stream.ResultChan():
			received := event.Object.(*unstructured.Unstructured)
			got := fmt.Sprint(event.Type, " ", received.GetKind(), " ", received.GetAnnotations()["kcp.io/cluster"], " ", nestedField(t, received, "status", "phase"))
			if got != want {
				t.Errorf("saw %q, want %q", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("waited 20s for %q", want)
		}
	}
}
