package limits

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/coordination"
	"k8s.io/kubernetes/pkg/apis/core"
)

func TestGrowthOf(t *testing.T) {
	configMap := func(size int, finalizers ...string) *core.ConfigMap {
		return &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Finalizers: finalizers}, Data: map[string]string{"x": strings.Repeat("x", size)}}
	}
	deleting := func(object *core.ConfigMap) *core.ConfigMap {
		object.DeletionTimestamp = &metav1.Time{Time: time.Unix(1000, 0)}
		return object
	}
	lease := func(size int) *coordination.Lease {
		return &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: map[string]string{"x": strings.Repeat("x", size)}}}
	}
	for name, tc := range map[string]struct {
		resource string
		old, obj runtime.Object
		want     growth
	}{
		"creation":                          {"configmaps", nil, configMap(0), grows},
		"creation of a lease":               {"leases", nil, lease(0), grows},
		"a smaller object":                  {"configmaps", configMap(10), configMap(9), shrinks},
		"another value of the same size":    {"configmaps", configMap(10), configMap(10), rewrites},
		"a larger object":                   {"configmaps", configMap(10), configMap(11), grows},
		"a larger lease":                    {"leases", lease(10), lease(100), shrinks},
		"a lease as a container of data":    {"leases", lease(10), lease(10_000), grows},
		"a lease that contains data":        {"leases", lease(10_000), lease(10_000), rewrites},
		"removal of a finalizer":            {"configmaps", deleting(configMap(10, "f")), deleting(configMap(200)), shrinks},
		"data with a removed finalizer":     {"configmaps", deleting(configMap(10, "f")), deleting(configMap(10_000)), grows},
		"data without a removed finalizer":  {"configmaps", deleting(configMap(10, "f")), deleting(configMap(200, "f")), grows},
		"removal of a finalizer, undeleted": {"configmaps", configMap(10, "f"), configMap(200), grows},
	} {
		t.Run(name, func(t *testing.T) {
			operation := admission.Update
			if tc.old == nil {
				operation = admission.Create
			}
			resource := schema.GroupVersionResource{Version: "v1", Resource: tc.resource}
			if tc.resource == leases.Resource {
				resource.Group = leases.Group
			}
			a := admission.NewAttributesRecord(tc.obj, tc.old, schema.GroupVersionKind{}, "default", "x", resource, "", operation, nil, false, nil)
			got, added, err := growthOf(a)
			if err != nil || got != tc.want {
				t.Errorf("got %d, %v, want %d", got, err, tc.want)
			}
			if (added > 0) != (tc.want == grows) {
				t.Errorf("adds %d bytes", added)
			}
		})
	}
}
