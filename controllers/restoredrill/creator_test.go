package restoredrill

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestIsForeign(t *testing.T) {
	created := time.Date(2030, 1, 2, 3, 0, 0, 0, time.UTC)
	const us, apply, update = "atoll-operator-d", metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, after time.Duration, fields string) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(created.Add(after))
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, APIVersion: "v1", Time: &at, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const annotation, name = `{"f:metadata":{"f:annotations":{".":{},"f:a":{}}}}`, `{"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/metadata.name":{}}}}`
	ours, status := entry(us, apply, 0, `{"f:metadata":{"f:labels":{"f:operator.kcp.io/restore-drill":{}}}}`), entry("k", update, time.Hour, `{"f:status":{"f:phase":{}}}`)
	late := entry(us, apply, time.Second, annotation)
	status.Subresource = "status"
	for name, tc := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    bool
	}{
		"only ours": {[]metav1.ManagedFieldsEntry{ours}, false},
		"a controller annotates it at the same time":  {[]metav1.ManagedFieldsEntry{ours, entry("openshift", update, 0, annotation)}, false},
		"a controller applies an annotation later":    {[]metav1.ManagedFieldsEntry{ours, entry("rancher", apply, time.Second, annotation)}, false},
		"its status is written":                       {[]metav1.ManagedFieldsEntry{ours, status}, false},
		"we have not written it":                      {nil, true},
		"somebody has created it":                     {[]metav1.ManagedFieldsEntry{entry("kubectl-create", update, 0, name), ours}, true},
		"somebody has applied it":                     {[]metav1.ManagedFieldsEntry{entry("flux", apply, 0, annotation), ours}, true},
		"somebody has applied it, and left no fields": {[]metav1.ManagedFieldsEntry{late}, true},
		"somebody has written its spec":               {[]metav1.ManagedFieldsEntry{ours, entry("k", update, time.Second, `{"f:spec":{"f:finalizers":{}}}`)}, true},
		"what somebody has written cannot be read":    {[]metav1.ManagedFieldsEntry{ours, entry("k", update, time.Second, `{`)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created), ManagedFields: tc.entries}}
			if got := isForeign(object, us); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
