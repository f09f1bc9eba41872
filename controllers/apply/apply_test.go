package apply

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestIntentOmitsUnsetFields(t *testing.T) {
	intent, err := newIntent(&appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b"},
		Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c"}},
			Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"status"} {
		if _, ok := intent.Object[field]; ok {
			t.Errorf("%s is claimed", field)
		}
	}
	spec := intent.Object["spec"].(map[string]any)
	if _, ok := spec["strategy"]; ok {
		t.Error("an empty strategy is claimed")
	}
	pod := spec["template"].(map[string]any)["spec"].(map[string]any)
	if _, ok := pod["containers"].([]any)[0].(map[string]any)["resources"]; ok {
		t.Error("empty resources are claimed")
	}
	if _, ok := pod["volumes"].([]any)[0].(map[string]any)["emptyDir"]; !ok {
		t.Error("an emptyDir is lost, and the volume with it")
	}
}

func TestCovers(t *testing.T) {
	type m = map[string]any
	for name, tc := range map[string]struct {
		live, intent any
		want         bool
	}{
		"the same":                            {m{"a": "1"}, m{"a": "1"}, true},
		"a field more, of others":             {m{"a": "1", "b": "2"}, m{"a": "1"}, true},
		"a field less":                        {m{}, m{"a": "1"}, false},
		"another value":                       {m{"a": "2"}, m{"a": "1"}, false},
		"a default inside a list":             {m{"a": []any{m{"n": "x", "d": int64(1)}}}, m{"a": []any{m{"n": "x"}}}, true},
		"an element more in a list":           {m{"a": []any{"x", "y"}}, m{"a": []any{"x"}}, false},
		"an empty map where there is nothing": {m{}, m{"a": m{}}, true},
		"a map where there is a text":         {m{"a": "x"}, m{"a": m{"b": "c"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if have := covers(tc.live, tc.intent); have != tc.want {
				t.Errorf("got %v", have)
			}
		})
	}
}

func TestReplicasOwner(t *testing.T) {
	entry := func(manager, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const replicas, other, reported = `{"f:spec":{"f:replicas":{}}}`, `{"f:spec":{"f:paused":{}}}`, `{"f:status":{"f:replicas":{}}}`
	for name, tc := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		others bool
	}{
		"the operator alone":              {[]metav1.ManagedFieldsEntry{entry(FieldManager, "", replicas), entry("kubectl", "", other)}, false},
		"status.replicas is ignored":      {[]metav1.ManagedFieldsEntry{entry(FieldManager, "", replicas), entry("controller", "status", reported)}, false},
		"an autoscaler too":               {[]metav1.ManagedFieldsEntry{entry(FieldManager, "", replicas), entry("autoscaler", "scale", replicas)}, true},
		"the initial number, handed over": {[]metav1.ManagedFieldsEntry{entry(FieldManager, "", other), entry(replicasManager, "", replicas)}, true},
		"no field manager":                {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			have, err := hasOtherReplicasOwner(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.fields}})
			if err != nil || have != tc.others {
				t.Errorf("got %v, %v", have, err)
			}
		})
	}
}

func TestOtherController(t *testing.T) {
	owned := func(kind, name, uid string) metav1.Object {
		controller := true
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
			{Kind: kind, Name: name, UID: types.UID(uid), Controller: &controller},
		}}}
	}
	for name, tc := range map[string]struct {
		live metav1.Object
		want string
	}{
		"without a controller it is adopted":  {&appsv1.Deployment{}, ""},
		"its own":                             {owned("FrontProxy", "kcp", "1"), ""},
		"its own from before it was restored": {owned("FrontProxy", "kcp", "0"), ""},
		"another kind's of the same name":     {owned("RootShard", "kcp", "2"), "RootShard kcp"},
		"another one's of the same kind":      {owned("FrontProxy", "b", "3"), "FrontProxy b"},
	} {
		t.Run(name, func(t *testing.T) {
			have := ""
			if owner := otherController(tc.live, owned("FrontProxy", "kcp", "1")); owner != nil {
				have = owner.Kind + " " + owner.Name
			}
			if have != tc.want {
				t.Errorf("got %q, want %q", have, tc.want)
			}
		})
	}
}
