package fieldowners

import (
	"encoding/json"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestOwnersOfRetiredVersionsAreMoved(t *testing.T) {
	const group = "infrastructure.example.org"
	to, isRetired := schema.GroupVersion{Group: group, Version: "v1"}, func(version string) bool { return version == "v1alpha1" }
	early, late := metav1.NewTime(time.Unix(1, 0)), metav1.NewTime(time.Unix(2, 0))
	owner := func(manager string, operation metav1.ManagedFieldsOperationType, version, subresource string, at *metav1.Time, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, APIVersion: version, Subresource: subresource, Time: at, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const apply, update, old, current = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate, group + "/v1alpha1", group + "/v1"
	size, tier := `{"f:spec":{"f:size":{}}}`, `{"f:spec":{"f:tier":{}}}`
	for name, test := range map[string]struct{ owners, want []metav1.ManagedFieldsEntry }{
		"nobody": {},
		"an owner in the retired version": {
			[]metav1.ManagedFieldsEntry{owner("kubectl", apply, old, "", &early, size)}, []metav1.ManagedFieldsEntry{owner("kubectl", apply, current, "", &early, size)},
		},
		"an owner in both": {
			[]metav1.ManagedFieldsEntry{owner("kubectl", apply, current, "", &early, tier), owner("kubectl", apply, old, "", &late, size)},
			[]metav1.ManagedFieldsEntry{owner("kubectl", apply, current, "", &late, `{"f:spec":{"f:size":{},"f:tier":{}}}`)},
		},
		"owners of different operations and subresources": {
			[]metav1.ManagedFieldsEntry{owner("a", apply, old, "", &early, size), owner("a", update, current, "", &early, size), owner("a", update, old, "status", &early, `{"f:status":{}}`)},
			[]metav1.ManagedFieldsEntry{owner("a", apply, current, "", &early, size), owner("a", update, current, "", &early, size), owner("a", update, current, "status", &early, `{"f:status":{}}`)},
		},
		"versions that are not retired, and of other groups": {
			[]metav1.ManagedFieldsEntry{owner("a", apply, group+"/v1beta1", "", &early, size), owner("b", apply, "example.org/v1alpha1", "", &early, size), owner("c", apply, "v1", "", nil, size)},
			[]metav1.ManagedFieldsEntry{owner("a", apply, group+"/v1beta1", "", &early, size), owner("b", apply, "example.org/v1alpha1", "", &early, size), owner("c", apply, "v1", "", nil, size)},
		},
	} {
		before, err := json.Marshal(test.owners)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Move(test.owners, to, isRetired)
		if err != nil || !equality.Semantic.DeepEqual(got, test.want) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
		if after, err := json.Marshal(test.owners); err != nil || string(after) != string(before) {
			t.Errorf("%s: the owners that were read are changed: %s, before %s", name, after, before)
		}
	}
	if _, err := Move([]metav1.ManagedFieldsEntry{owner("a", apply, old, "", nil, `{`), owner("a", apply, current, "", nil, size)}, to, isRetired); err == nil {
		t.Error("fields that are no JSON are accepted")
	}
}
