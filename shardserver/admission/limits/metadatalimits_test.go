package limits

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
)

func TestMetadataLimits(t *testing.T) {
	object := func(owners, finalizers int) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{OwnerReferences: make([]metav1.OwnerReference, owners), Finalizers: make([]string, finalizers)}}
	}
	managed := func(managers int) runtime.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ManagedFields: make([]metav1.ManagedFieldsEntry, managers)}}
	}
	custom := &unstructured.Unstructured{}
	custom.SetManagedFields(make([]metav1.ManagedFieldsEntry, 3))
	for name, test := range map[string]struct {
		object, old runtime.Object
		want        string
	}{
		"at the limits":              {object: object(3, 3)},
		"too many owners":            {object: object(4, 0), want: "metadata.ownerReferences"},
		"too many finalizers":        {object: object(0, 4), want: "metadata.finalizers"},
		"as many as stored":          {object: object(5, 5), old: object(5, 5)},
		"fewer than stored":          {object: object(4, 0), old: object(5, 0)},
		"more than stored":           {object: object(6, 0), old: object(5, 0), want: "metadata.ownerReferences"},
		"too many managers":          {object: managed(3), want: "metadata.managedFields"},
		"of a custom resource":       {object: custom, want: "metadata.managedFields"},
		"as many managers as stored": {object: managed(3), old: managed(3)},
		"an object without metadata": {object: &metav1.DeleteOptions{}},
	} {
		t.Run(name, func(t *testing.T) {
			kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
			a := admission.NewAttributesRecord(test.object, test.old, kind, "default", "a", corev1.SchemeGroupVersion.WithResource("configmaps"), "", admission.Update, nil, false, nil)
			err := metadataLimits{admission.NewHandler(admission.Update), 3, 2}.Validate(t.Context(), a, nil)
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want Invalid with %s", err, test.want)
			}
		})
	}
}
