package garbage_test

import (
	"cmp"
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testOwnerInOtherNamespace: an owner is in another namespace by its UID, whatever else the reference says.
func testOwnerInOtherNamespace(t *testing.T, w *env) {
	here, there := w.createNamespace(t, w.a), w.createNamespace(t, w.a)
	sibling, first := w.createConfigMap(t, w.a, here, "sibling"), w.createConfigMap(t, w.a, there, "first")
	inB := w.createConfigMap(t, w.b, "default", "owner-of-a")
	ofRole := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "gc-"}}
	w.create(t, w.a, ofRole)
	const roleVersion = "rbac.authorization.k8s.io/v1"
	cases := []struct {
		name          string
		owner         metav1.OwnerReference
		clusterScoped bool
		kept          bool
		reported      bool
	}{
		{name: "right-kind", owner: ownerRef(first), reported: true},
		{name: "other-name", owner: newOwnerReference("v1", "ConfigMap", "other", first.UID), reported: true},
		{name: "other-kind", owner: newOwnerReference("v1", "Secret", "first", first.UID), reported: true},
		{name: "cluster-scoped-kind", owner: newOwnerReference(roleVersion, "ClusterRole", "first", first.UID), reported: true},
		{name: "unknown-kind", owner: newOwnerReference("example.com/v1", "Thing", "first", first.UID), kept: true, reported: true},
		{name: "of-role", clusterScoped: true, owner: newOwnerReference(roleVersion, "ClusterRole", "first", first.UID), reported: true},
		{name: "here-other-name", owner: newOwnerReference("v1", "ConfigMap", "other", sibling.UID)},
		{name: "here-other-kind", owner: newOwnerReference("v1", "Secret", "sibling", sibling.UID)},
		{name: "cluster-scoped-owner", owner: newOwnerReference("v1", "ConfigMap", ofRole.Name, ofRole.UID)},
		{name: "other-cluster", owner: newOwnerReference("v1", "Secret", "owner-of-a", inB.UID)},
		{name: "nowhere", owner: newOwnerReference("v1", "Secret", "first", "none")},
	}
	dependents := map[string]client.Object{}
	for _, tc := range cases {
		metadata := metav1.ObjectMeta{Namespace: here, Name: tc.name, OwnerReferences: []metav1.OwnerReference{tc.owner}}
		dependents[tc.name] = &corev1.ConfigMap{ObjectMeta: metadata}
		if tc.clusterScoped {
			metadata.Namespace = ""
			dependents[tc.name] = &rbacv1.ClusterRole{ObjectMeta: metadata}
		}
		w.create(t, w.a, dependents[tc.name])
	}
	for _, tc := range cases {
		if !tc.kept {
			w.eventuallyDeleted(t, w.a, dependents[tc.name])
		}
		if tc.reported {
			w.eventuallyReported(t, eventNamespace(dependents[tc.name]), dependents[tc.name])
		}
	}
	last := w.createConfigMap(t, w.a, here, "last", ownerRef(first)) // reported by a later search than all others
	w.eventuallyReported(t, here, last)
	reported := w.reported(t, here)
	for _, tc := range cases {
		if !tc.reported && reported[dependents[tc.name].GetUID()] {
			t.Errorf("%s: an event reports the owner", tc.name)
		}
	}
	w.assertExists(t, w.a, dependents["unknown-kind"])
	w.delete(t, w.a, dependents["unknown-kind"], metav1.DeletePropagationBackground)
}

func testManyInOtherNamespace(t *testing.T, w *env) {
	const count = 300
	here, there := w.createNamespace(t, w.a), w.createNamespace(t, w.a)
	first := w.createConfigMap(t, w.a, there, "first")
	w.createDependents(t, w.a, here, count, newOwnerReference("v1", "Secret", "first", first.UID))
	shardtesting.Eventually(t, "an event for each dependent", func(context.Context) error {
		if reported := len(w.reported(t, here)); reported != count {
			return fmt.Errorf("%d of %d", reported, count)
		}
		return nil
	})
	w.assertExists(t, w.a, first)
}

func (e *env) eventuallyReported(t *testing.T, namespace string, obj client.Object) {
	t.Helper()
	uid := obj.GetUID()
	shardtesting.Eventually(t, "the event of "+obj.GetName(), func(context.Context) error {
		if reported := e.reported(t, namespace); !reported[uid] {
			return fmt.Errorf("%d others are reported", len(reported))
		}
		return nil
	})
}

// reported returns the UIDs of the objects with owners in other namespaces by the events of a namespace.
func (e *env) reported(t *testing.T, namespace string) map[types.UID]bool {
	t.Helper()
	events := &corev1.EventList{}
	if err := e.client.List(shardtesting.In(t.Context(), e.a), events, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	uids := map[types.UID]bool{}
	for _, event := range events.Items {
		if event.Reason == "OwnerRefInvalidNamespace" {
			uids[event.InvolvedObject.UID] = true
		}
	}
	return uids
}

// eventNamespace returns the namespace of the events of an object.
func eventNamespace(obj client.Object) string {
	return cmp.Or(obj.GetNamespace(), metav1.NamespaceDefault)
}
