package migration

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const finalizer = "example.io/kept"

// metadata are objects of a workspace that moves, which together have all fields of metadata.
type metadata struct {
	client client.Client
	before []*unstructured.Unstructured
}

// newMetadata creates an object with an owner and two field managers, one that is being deleted, and one with a generation.
func newMetadata(t *testing.T, c client.Client) *metadata {
	t.Helper()
	owner := put(t, c, "owner")
	owned := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: "owned", Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "1"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))},
		},
		Data: map[string]string{"of": "the first manager"},
	}
	if err := c.Create(t.Context(), owned, client.FieldOwner("first")); err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"data":{"of":"the second manager"}}`))
	if err := c.Patch(t.Context(), owned, patch, client.FieldOwner("second")); err != nil {
		t.Fatal(err)
	}
	deleted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "deleted", Finalizers: []string{finalizer}}}
	if err := c.Create(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	policy := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "generation"},
		"spec": map[string]any{
			"failurePolicy": "Fail", "validations": []any{map[string]any{"expression": "true"}},
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"configmaps"},
			}}},
		},
	}}
	policy.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"})
	if err := c.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	if err := c.Patch(t.Context(), policy, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"failurePolicy":"Ignore"}}`))); err != nil {
		t.Fatal(err)
	}
	m := &metadata{client: c}
	for _, name := range []string{"owned", "deleted"} {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		object.SetNamespace(metav1.NamespaceDefault)
		object.SetName(name)
		m.before = append(m.before, object)
	}
	m.before = append(m.before, policy)
	for _, object := range m.before {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
	}
	if m.before[1].GetDeletionTimestamp() == nil || len(m.before[0].GetManagedFields()) != 2 || policy.GetGeneration() != 2 {
		t.Fatalf("the objects lack metadata: %v", m.before)
	}
	return m
}

// check fails unless the objects are equal but for their versions, and an object that was being deleted goes with its finalizer.
func (m *metadata) check(t *testing.T) {
	t.Helper()
	for _, want := range m.before {
		got := &unstructured.Unstructured{}
		got.SetGroupVersionKind(want.GroupVersionKind())
		if err := m.client.Get(t.Context(), client.ObjectKeyFromObject(want), got); err != nil {
			t.Fatal(err)
		}
		if got.GetResourceVersion() == want.GetResourceVersion() {
			t.Errorf("%s has version %s as before the move", want.GetName(), got.GetResourceVersion())
		}
		want.SetResourceVersion(got.GetResourceVersion())
		if want.GetKind() == "ValidatingAdmissionPolicy" { // the server of the moment checks the types of its expressions
			delete(want.Object, "status")
			delete(got.Object, "status")
		}
		if !equality.Semantic.DeepEqual(got.Object, want.Object) {
			t.Errorf("after the move there is\n%v\nwant\n%v", got.Object, want.Object)
		}
	}
	deleted := m.before[1]
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := m.client.Patch(t.Context(), deleted, patch); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the deletion of an object without finalizers", func(ctx context.Context) error {
		if err := m.client.Get(ctx, client.ObjectKeyFromObject(deleted), deleted); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it exists (%w)", err)
		}
		return nil
	})
}
