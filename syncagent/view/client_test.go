package view

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func newObject(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	object.SetNamespace("default")
	object.SetName(name)
	return object
}

// TestClient reads and writes objects by their kind in workspaces, while the server has them under the kind of the service cluster.
func TestClient(t *testing.T) {
	p := newCertificates()
	workspace, served := p.Workspace.GroupVersionKind, p.Service.GroupVersionKind
	server := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(newObject(served, "first")).WithStatusSubresource(newObject(served, "")).Build()
	c := NewClient(server, p.Workspace, p.Service)
	key := client.ObjectKey{Namespace: "default", Name: "first"}

	object := newObject(workspace, "")
	if err := c.Get(t.Context(), key, object); err != nil || object.GroupVersionKind() != workspace || object.GetName() != "first" {
		t.Fatalf("got %v, %v", object, err)
	}
	must := func(what string, err error) {
		t.Helper()
		if err != nil || object.GroupVersionKind() != workspace {
			t.Fatalf("%s: %v, %v", what, object.GroupVersionKind(), err)
		}
	}
	must("patch", c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["a/b"]}}`))))
	object.SetAnnotations(map[string]string{"a": "b"})
	must("update", c.Update(t.Context(), object))
	must("patch of the status", c.Status().Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Old"}}`))))
	object.Object["status"] = map[string]any{"phase": "New"}
	must("update of the status", c.Status().Update(t.Context(), object))
	stored := newObject(served, "")
	if err := server.Get(t.Context(), key, stored); err != nil || stored.GetAnnotations()["a"] != "b" || len(stored.GetFinalizers()) != 1 || stored.Object["status"].(map[string]any)["phase"] != "New" {
		t.Errorf("the server has %v, %v", stored, err)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(workspace.GroupVersion().WithKind("CertList"))
	if err := c.List(t.Context(), list); err != nil || len(list.Items) != 1 || list.Items[0].GroupVersionKind() != workspace || list.GetKind() != "CertList" {
		t.Errorf("got %v, %v", list, err)
	}
	other := newObject(schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, "other")
	if err := c.Create(t.Context(), other); err != nil || other.GetKind() != "Secret" {
		t.Errorf("another kind: %v, %v", other, err)
	}
	object = newObject(workspace, "")
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "missing"}, object); !apierrors.IsNotFound(err) || object.GroupVersionKind() != workspace {
		t.Errorf("got %v, %v", object, err)
	}
	object = newObject(workspace, "first")
	if err := c.Delete(t.Context(), object); err != nil {
		t.Error(err)
	}
	if NewClient(server, p.Service, p.Service) != Client(server) {
		t.Error("a client is wrapped without need")
	}
}
