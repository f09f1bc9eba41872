package crdhandler_test

import (
	"context"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func testEstablishedDefinition(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	w.define(newDefinition("example.com"))
	one := w.create(newWidget("one", map[string]any{"size": "big", "stray": "pruned"}))
	if spec := one.Object["spec"].(map[string]any); spec["stray"] != nil || spec["colour"] != "red" {
		t.Errorf("the object was not pruned and defaulted: %v", spec)
	}
	if one.GetAnnotations()["kcp.io/cluster"] == "" || one.GetGeneration() != 1 {
		t.Errorf("metadata is %v", one.Object["metadata"])
	}
	if got := w.get("one"); got.GetUID() != one.GetUID() {
		t.Errorf("got %v", got)
	}
	list, err := w.objects("v1").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.GetKind() != "WidgetList" {
		t.Errorf("the list is %v, %v", list, err)
	}
	watcher, err := w.objects("v1").Watch(t.Context(), metav1.ListOptions{ResourceVersion: one.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	w.create(newWidget("two", nil))
	if event := <-watcher.ResultChan(); event.Type != watch.Added || event.Object.(*unstructured.Unstructured).GetName() != "two" {
		t.Errorf("the event is %v", event)
	}
	if _, err := w.objects("v1").Create(t.Context(), newWidget("three", map[string]any{"size": int64(3)}), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("an object that violates the schema: got %v, want Invalid", err)
	}
}

func testSameNameInTwoWorkspaces(t *testing.T, shard *shardtesting.Shard) {
	a, b := newWorkspace(t, shard), newWorkspace(t, shard)
	a.define(newDefinition("example.com"))
	other := newDefinition("example.com")
	other.Spec.Scope = apiextensionsv1.ClusterScoped
	other.Spec.Names.Kind, other.Spec.Names.ListKind = "Gadget", "GadgetList"
	other.Spec.Versions[0].Name = "v2"
	b.define(other)
	a.create(newWidget("same", map[string]any{"size": "big"}))
	gadget := newWidget("same", map[string]any{"size": "small"})
	gadget.SetNamespace("")
	gadget.SetAPIVersion("example.com/v2")
	gadget.SetKind("Gadget")
	if _, err := b.clusterObjects("v2").Create(t.Context(), gadget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct {
		list func() (*unstructured.UnstructuredList, error)
		kind string
	}{
		{func() (*unstructured.UnstructuredList, error) {
			return a.clusterObjects("v1").List(t.Context(), metav1.ListOptions{})
		}, "Widget"},
		{func() (*unstructured.UnstructuredList, error) {
			return b.clusterObjects("v2").List(t.Context(), metav1.ListOptions{})
		}, "Gadget"},
	} {
		list, err := w.list()
		if err != nil || len(list.Items) != 1 || list.Items[0].GetKind() != w.kind {
			t.Errorf("the list of %ss is %v, %v", w.kind, list, err)
		}
	}
	if _, err := a.clusterObjects("v2").List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the version of the other workspace: got %v, want NotFound", err)
	}
}

func testDefinitionDeletion(t *testing.T, shard *shardtesting.Shard) {
	a, b := newWorkspace(t, shard), newWorkspace(t, shard)
	a.define(newDefinition("gone.example.com"))
	b.define(newDefinition("gone.example.com"))
	a.create(withGroup(newWidget("one", nil), "gone.example.com"))
	held := withGroup(newWidget("held", nil), "gone.example.com")
	held.SetFinalizers([]string{"example.com/hold"})
	a.create(held)
	b.create(withGroup(newWidget("stays", nil), "gone.example.com"))
	if err := a.definitions().Delete(t.Context(), "widgets.gone.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "creations are rejected and objects without finalizers are deleted", func(ctx context.Context) error {
		_, err := a.objectsOf("gone.example.com", "v1").Create(ctx, withGroup(newWidget("late", nil), "gone.example.com"), metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("a creation: got %v, want Forbidden", err)
		}
		list, err := a.objectsOf("gone.example.com", "v1").List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "held" {
			return fmt.Errorf("remaining objects are %v, %v", list, err)
		}
		return nil
	})
	if _, err := a.objectsOf("gone.example.com", "v1").Patch(t.Context(), "held", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the definition is deleted", func(ctx context.Context) error {
		_, err := a.definitions().Get(ctx, "widgets.gone.example.com", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %v", err)
		}
		_, err = a.objectsOf("gone.example.com", "v1").List(ctx, metav1.ListOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("listing its objects: got %v", err)
		}
		return nil
	})
	if list, err := b.objectsOf("gone.example.com", "v1").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Errorf("the other workspace has %v, %v", list, err)
	}
}
