package shard

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
)

func TestRestore(t *testing.T) {
	stopped := metav1.NewTime(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	restore := func(phase operatorv1alpha1.RestorePhase, root string) client.Object {
		return &operatorv1alpha1.Restore{
			ObjectMeta: metav1.ObjectMeta{Name: "back", Namespace: "kcp"}, Status: operatorv1alpha1.RestoreStatus{Phase: phase, StoppedAt: &stopped},
			Spec: operatorv1alpha1.RestoreSpec{RootShardRef: corev1.LocalObjectReference{Name: root}},
		}
	}
	server := func(name string) client.Object {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kcp"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{}}}
	}
	for name, tc := range map[string]struct {
		objects      []client.Object
		change       func(*operatorv1alpha1.RootShard)
		root, shards bool // wait
	}{
		"both wait for a Restore that does not exist yet":  {nil, nil, true, true},
		"both wait while it runs":                          {[]client.Object{restore(operatorv1alpha1.RestorePhaseRunning, "root")}, nil, true, true},
		"both wait after it has failed":                    {[]client.Object{restore(operatorv1alpha1.RestorePhaseFailed, "root")}, nil, true, true},
		"the Restore of another installation is none":      {[]client.Object{restore(operatorv1alpha1.RestorePhaseCompleted, "other")}, nil, true, true},
		"one that was completed before is none":            {[]client.Object{restore(operatorv1alpha1.RestorePhaseCompleted, "root")}, func(r *operatorv1alpha1.RootShard) { r.CreationTimestamp = metav1.NewTime(stopped.Add(time.Second)) }, true, true},
		"they start when it is completed":                  {[]client.Object{restore(operatorv1alpha1.RestorePhaseCompleted, "root")}, nil, false, false},
		"without the annotation, nothing waits":            {[]client.Object{restore(operatorv1alpha1.RestorePhaseRunning, "root")}, func(r *operatorv1alpha1.RootShard) { r.Annotations = nil }, false, false},
		"an installation that has started is not held":     {nil, func(r *operatorv1alpha1.RootShard) { r.Status.Etcd = &operatorv1alpha1.EtcdStatus{ClusterID: "1"} }, false, false},
		"neither is the server of a RootShard that exists": {[]client.Object{server("root-kcp")}, nil, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			root := newRootShard()
			root.Annotations = map[string]string{operatorv1alpha1.AnnotationRestore: "back"}
			if tc.change != nil {
				tc.change(root)
			}
			s := newEnv(t, append([]client.Object{root, newShard(nil)}, tc.objects...)...)
			root = s.reconcileRoot("root")
			s.reconcile()
			for name, want := range map[string]bool{"root": tc.root, "alpha": tc.shards} {
				conditions := root.Status.Conditions
				if name == "alpha" {
					conditions = s.getShard().Status.Conditions
				}
				available := meta.FindStatusCondition(conditions, operatorv1alpha1.ConditionAvailable)
				waits := available != nil && available.Reason == operatorv1alpha1.ReasonAwaitsRestore
				if waits != want {
					t.Errorf("%s: %+v, want that it waits: %t", name, available, want)
				}
				err := s.client.Get(t.Context(), client.ObjectKey{Namespace: "kcp", Name: name + "-etcd-record"}, &corev1.ConfigMap{})
				if (err != nil) != want {
					t.Errorf("%s: reading an object of its etcd: %v", name, err)
				}
			}
		})
	}
}

// TestRetirementAfterRestore: a RootShard whose spec confirms a retirement, and that is restored from a backup with the previous keys, does not
// retire them before the Restore is released.
func TestRetirementAfterRestore(t *testing.T) {
	completed := func(r *operatorv1alpha1.Restore) { r.Status.Phase = operatorv1alpha1.RestorePhaseCompleted }
	for name, tc := range map[string]struct {
		change func(*operatorv1alpha1.Restore) // nil: it does not exist
		held   bool
	}{
		"not released":            {completed, true},
		"released":                {func(r *operatorv1alpha1.Restore) { completed(r); r.Spec.Release = true }, false},
		"of another installation": {func(r *operatorv1alpha1.Restore) { completed(r); r.Spec.RootShardRef.Name = "other" }, false},
		"failed":                  {func(r *operatorv1alpha1.Restore) { r.Status.Phase = operatorv1alpha1.RestorePhaseFailed }, false},
		"deleted":                 {nil, false},
	} {
		for _, ca := range desired.Rekeyable() {
			t.Run(name+" "+string(ca), func(t *testing.T) {
				root := rekeyed(ca, operatorv1alpha1.CertificateAuthorityIssue, 1, 2, 2)
				root.Annotations = map[string]string{operatorv1alpha1.AnnotationRestore: "back"}
				root.Spec.Certificates.Rekey[0].RetireGeneration = 1
				root.Status.Certificates.CAs[0].ReadySince = &metav1.Time{Time: time.Now().Add(-time.Hour)}
				root.Status.Etcd = &operatorv1alpha1.EtcdStatus{ClusterID: "1"}
				objects := []client.Object{root, newCA(t, desired.CAName(root, ca)), newCA(t, desired.CAName(root, ca)+"-2")}
				if tc.change != nil {
					restore := &operatorv1alpha1.Restore{ObjectMeta: inKCP("back")}
					restore.Spec.RootShardRef.Name = "root"
					tc.change(restore)
					objects = append(objects, restore)
				}
				state := desired.CAState(newEnv(t, objects...).reconcileRoot("root"), ca)
				if held := state.Phase == operatorv1alpha1.CertificateAuthorityIssue; held != tc.held {
					t.Errorf("got %+v", state)
				}
				if named := slices.ContainsFunc(state.BlockedBy, func(text string) bool { return strings.HasPrefix(text, "Restore back is not released") }); named != tc.held {
					t.Errorf("blocked by %q", state.BlockedBy)
				}
			})
		}
	}
}
