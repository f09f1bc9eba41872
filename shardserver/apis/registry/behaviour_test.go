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

func nested(t *testing.T, obj *unstructured.Unstructured, path ...string) any {
	t.Helper()
	value, _, err := unstructured.NestedFieldCopy(obj.Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestTheStatusIsDroppedOnCreationAndDefaulted(t *testing.T) {
	created := create(t, in(t, fresh("create")).Resource(workspaces), object(workspaces, "a", fields{
		"status": fields{"phase": "Ready", "initializers": []any{"root:universal"}},
	}))
	if got := nested(t, created, "status"); !reflect.DeepEqual(got, fields{"phase": "Scheduling"}) {
		t.Errorf("status = %v", got)
	}
	if got := nested(t, created, "spec"); !reflect.DeepEqual(got, fields{}) {
		t.Errorf("spec = %v, want the default {}", got)
	}
	if created.GetGeneration() != 1 {
		t.Errorf("generation = %d", created.GetGeneration())
	}
}

func TestSpecAndStatusAreWrittenApart(t *testing.T) {
	client := in(t, fresh("apart")).Resource(workspaces)
	obj := create(t, client, object(workspaces, "a", fields{"spec": fields{"cluster": "x"}}))

	change := func(obj *unstructured.Unstructured) {
		obj.SetLabels(map[string]string{"region": "eu"})
		obj.Object["spec"] = fields{"cluster": "x", "URL": "https://example.test"}
		obj.Object["status"] = fields{"phase": "Ready"}
	}
	change(obj)
	viaMain, err := client.Update(t.Context(), obj, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if nested(t, viaMain, "status", "phase") != "Scheduling" || nested(t, viaMain, "spec", "URL") != "https://example.test" || viaMain.GetGeneration() != 2 {
		t.Errorf("the main resource writes spec and metadata alone, and counts generations: %v", viaMain.Object)
	}

	viaMain.SetLabels(nil)
	viaMain.Object["spec"] = fields{}
	viaMain.Object["status"] = fields{"phase": "Ready"}
	viaStatus, err := client.UpdateStatus(t.Context(), viaMain, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if nested(t, viaStatus, "status", "phase") != "Ready" || nested(t, viaStatus, "spec", "cluster") != "x" ||
		viaStatus.GetLabels()["region"] != "eu" || viaStatus.GetGeneration() != 2 {
		t.Errorf("the status subresource writes the status alone: %v", viaStatus.Object)
	}
}

func TestApplyMergesAndTracksFieldOwners(t *testing.T) {
	client := in(t, fresh("apply")).Resource(workspaces)
	ctx := t.Context()
	if _, err := client.Apply(ctx, "a", object(workspaces, "a", fields{"spec": fields{"type": fields{"name": "team", "path": "root"}}}),
		metav1.ApplyOptions{FieldManager: "user"}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ApplyStatus(ctx, "a", object(workspaces, "a", fields{"status": fields{"phase": "Ready"}}),
		metav1.ApplyOptions{FieldManager: "system"}); err != nil {
		t.Fatal(err)
	}
	// Another field manager adds a field and keeps those of the first one.
	applied, err := client.Apply(ctx, "a", object(workspaces, "a", fields{"spec": fields{"URL": "https://example.test"}}), metav1.ApplyOptions{FieldManager: "scheduler"})
	if err != nil {
		t.Fatal(err)
	}
	if nested(t, applied, "spec", "type", "name") != "team" || nested(t, applied, "status", "phase") != "Ready" {
		t.Errorf("apply must merge: %v", applied.Object)
	}
	_, err = client.Apply(ctx, "a", object(workspaces, "a", fields{"spec": fields{"URL": "https://other.test"}}), metav1.ApplyOptions{FieldManager: "user"})
	if !apierrors.IsConflict(err) {
		t.Errorf("another owner's field must not be taken without force, got %v", err)
	}
	for _, entry := range applied.GetManagedFields() {
		if entry.Manager == "user" && strings.Contains(entry.FieldsV1.GetRawString(), "f:status") {
			t.Errorf("a user of the main resource owns parts of the status: %s", entry.FieldsV1.GetRawString())
		}
	}
}

func TestPatchesOfEveryKindWork(t *testing.T) {
	client := in(t, fresh("patch")).Resource(workspaceTypes)
	create(t, client, object(workspaceTypes, "a", fields{"spec": fields{"extend": fields{"with": []any{fields{"name": "universal", "path": "root"}}}}}))
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
	if !reflect.DeepEqual(nested(t, got, "spec"), any(want)) || got.GetLabels()["x"] != "y" || got.GetGeneration() != 3 {
		t.Errorf("after the patches: %v", got.Object)
	}
}

func TestEqualNamesInTwoLogicalClusters(t *testing.T) {
	one, two := fresh("one"), fresh("two")
	for _, cluster := range []string{one, two} {
		create(t, in(t, cluster).Resource(logicalClusters), object(logicalClusters, "cluster", fields{"spec": fields{"initializers": []any{"root:" + cluster}}}))
	}
	for _, cluster := range []string{one, two} {
		list, err := in(t, cluster).Resource(logicalClusters).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=cluster"})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 || !reflect.DeepEqual(nested(t, &list.Items[0], "spec", "initializers"), []any{"root:" + cluster}) {
			t.Errorf("cluster %s lists %v", cluster, list.Items)
		}
		if list.Items[0].GetAnnotations()["kcp.io/cluster"] != cluster {
			t.Errorf("annotations = %v", list.Items[0].GetAnnotations())
		}
	}
	if err := in(t, one).Resource(logicalClusters).Delete(t.Context(), "cluster", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := in(t, two).Resource(logicalClusters).Get(t.Context(), "cluster", metav1.GetOptions{}); err != nil {
		t.Errorf("deleting in one logical cluster reached another: %v", err)
	}
}

func TestWritesNeedTheResourceVersionTheyAreBasedOn(t *testing.T) {
	client := in(t, fresh("versions")).Resource(workspaces)
	obj := create(t, client, object(workspaces, "a", nil))
	obj.SetResourceVersion("")
	if _, err := client.Update(t.Context(), obj, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("an update without a resource version must be refused as for a custom resource, got %v", err)
	}
	if _, err := client.Update(t.Context(), object(workspaces, "b", fields{}), metav1.UpdateOptions{}); !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
		t.Errorf("an update must not create, got %v", err)
	}
}

func get(t *testing.T, path, accept string) []byte {
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

func TestPrintedColumns(t *testing.T) {
	cluster := fresh("table")
	labelled := object(workspaces, "a", fields{"spec": fields{"type": fields{"name": "team", "path": "root"}, "URL": "https://example.test"}})
	labelled.SetLabels(map[string]string{"region": "eu"})
	create(t, in(t, cluster).Resource(workspaces), labelled)
	create(t, in(t, cluster).Resource(workspaceTypes), object(workspaceTypes, "a", nil))
	create(t, in(t, cluster).Resource(shards), object(shards, "a", fields{"spec": fields{"baseURL": "https://s.test"}}))
	create(t, in(t, cluster).Resource(logicalClusters), object(logicalClusters, "cluster", nil))

	for path, want := range map[string]string{
		"tenancy.kcp.io/v1alpha1/workspaces":     "Name=a Type=team Region=eu Phase=Scheduling URL=https://example.test Age=",
		"tenancy.kcp.io/v1alpha1/workspaces/a":   "Name=a Type=team Region=eu Phase=Scheduling URL=https://example.test Age=",
		"tenancy.kcp.io/v1alpha1/workspacetypes": "Name=a Age=",
		"core.kcp.io/v1alpha1/shards":            "Name=a Region=<nil> URL=https://s.test External URL=<nil> Ready=<nil> Logical Clusters=<nil> Age=",
		"core.kcp.io/v1alpha1/logicalclusters":   "Name=cluster Phase=Scheduling URL=<nil> Age=",
	} {
		var table metav1.Table
		if err := json.Unmarshal(get(t, "/clusters/"+cluster+"/apis/"+path, "application/json;as=Table;v=v1;g=meta.k8s.io"), &table); err != nil {
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

func TestDiscoveryNamesTheKinds(t *testing.T) {
	var list metav1.APIResourceList
	if err := json.Unmarshal(get(t, "/clusters/discovery/apis/tenancy.kcp.io/v1alpha1", "application/json"), &list); err != nil {
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
		t.Errorf("discovery says %q", got)
	}
}

func TestPublishedDefinitions(t *testing.T) {
	var document struct {
		Components struct {
			Schemas map[string]struct {
				Kinds []metav1.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
			}
		}
	}
	if err := json.Unmarshal(get(t, "/clusters/openapi/openapi/v3/apis/tenancy.kcp.io/v1alpha1", "application/json"), &document); err != nil {
		t.Fatal(err)
	}
	workspace, ok := document.Components.Schemas["io.kcp.tenancy.v1alpha1.Workspace"]
	if !ok || !reflect.DeepEqual(workspace.Kinds, []metav1.GroupVersionKind{{Group: "tenancy.kcp.io", Version: "v1alpha1", Kind: "Workspace"}}) {
		t.Errorf("the schema of Workspace lists %v (present: %t)", workspace.Kinds, ok)
	}
}

func TestAClientThatPrefersProtobufGetsJSON(t *testing.T) {
	cluster := fresh("protobuf")
	create(t, in(t, cluster).Resource(workspaces), object(workspaces, "a", nil))
	path := "/clusters/" + cluster + "/apis/tenancy.kcp.io/v1alpha1/workspaces/a"
	if body := get(t, path, "application/vnd.kubernetes.protobuf,application/json"); !json.Valid(body) {
		t.Errorf("got %q", body)
	}
	const metadata = ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	body := get(t, path, "application/vnd.kubernetes.protobuf"+metadata+",application/json"+metadata+",application/json")
	if !strings.Contains(string(body), "PartialObjectMetadata") {
		t.Errorf("a client of metadata got %q", body)
	}
}

func TestAWatchSeesItsOwnLogicalClusterAlone(t *testing.T) {
	cluster := fresh("watched")
	watched, other := in(t, cluster).Resource(workspaces), in(t, fresh("unwatched")).Resource(workspaces)
	stream, err := watched.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Stop()
	create(t, other, object(workspaces, "a", nil))
	obj := create(t, watched, object(workspaces, "a", nil))
	obj.Object["status"] = fields{"phase": "Ready"}
	if _, err := watched.UpdateStatus(t.Context(), obj, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ADDED Workspace " + cluster + " Scheduling", "MODIFIED Workspace " + cluster + " Ready"} {
		select {
		case event := <-stream.ResultChan():
			seen := event.Object.(*unstructured.Unstructured)
			got := fmt.Sprint(event.Type, " ", seen.GetKind(), " ", seen.GetAnnotations()["kcp.io/cluster"], " ", nested(t, seen, "status", "phase"))
			if got != want {
				t.Errorf("saw %q, want %q", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("waited 20s for %q", want)
		}
	}
}
