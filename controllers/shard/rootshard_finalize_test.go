package shard

import (
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
)

// deletedRootShard is a RootShard that is being deleted and has the finalizer.
func deletedRootShard(name, force string) *operatorv1alpha1.RootShard {
	root := newRootShard()
	root.Name, root.UID = name, "deleted"
	root.Finalizers = []string{operatorv1alpha1.FinalizerRootShard}
	root.Annotations = map[string]string{operatorv1alpha1.AnnotationForceDelete: force}
	root.DeletionTimestamp = &metav1.Time{Time: metav1.Now().Time}
	return root
}

// reconcileRoot reconciles a RootShard once and reads it; it is nil once it is deleted.
func (e *env) reconcileRoot(name string) *operatorv1alpha1.RootShard {
	e.t.Helper()
	key := client.ObjectKey{Namespace: "kcp", Name: name}
	if _, err := NewRootShardReconciler(e.config(), e).Reconcile(e.t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		e.t.Fatal(err)
	}
	root := &operatorv1alpha1.RootShard{}
	err := e.client.Get(e.t.Context(), key, root)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		e.t.Fatal(err)
	}
	return root
}

func TestRootShardDeletion(t *testing.T) {
	for name, tc := range map[string]struct {
		change      func(*operatorv1alpha1.RootShard)
		env         func(*env)
		terminating bool   // the namespace
		external    bool   // the user runs the etcd
		text        string // of the condition; "" once it is deleted
		calls       string
	}{
		"an installation without workspaces is deleted": {calls: "cordon all,count all"},
		"one with workspaces waits":                     {env: func(s *env) { s.count = 3 }, text: "deletion waits for 3 workspaces of the installation: delete them, or set the annotation operator.kcp.io/force-delete=true", calls: "cordon all,count all"},
		"one that does not answer waits":                {env: func(s *env) { s.err = errors.New("no connection") }, text: "no connection; repair it, or set the annotation", calls: "cordon all"},
		"in the foreground workspaces are not counted": {change: func(r *operatorv1alpha1.RootShard) {
			r.Finalizers = append(r.Finalizers, metav1.FinalizerDeleteDependents)
		}, text: "the servers are created again"},
		"the user confirms that workspaces are lost":      {change: func(r *operatorv1alpha1.RootShard) { r.Annotations[operatorv1alpha1.AnnotationForceDelete] = "true" }, env: func(s *env) { s.count = 3 }},
		"any other value of the annotation is ignored":    {change: func(r *operatorv1alpha1.RootShard) { r.Annotations[operatorv1alpha1.AnnotationForceDelete] = "yes" }, env: func(s *env) { s.count = 1 }, text: "1 workspace of", calls: "cordon all,count all"},
		"in a namespace that is being deleted it is lost": {terminating: true, env: func(s *env) { s.count = 3 }},
		"volumes of an etcd of the user are kept": {external: true, calls: "cordon all,count all",
			change: func(r *operatorv1alpha1.RootShard) {
				r.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Endpoints: []string{"https://root-etcd:2379"}}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			root := deletedRootShard("root", "")
			if tc.change != nil {
				tc.change(root)
			}
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kcp"}}
			if tc.terminating {
				namespace.DeletionTimestamp, namespace.Finalizers = root.DeletionTimestamp, []string{"kubernetes"}
			}
			claim := func(name string, labels map[string]string) *corev1.PersistentVolumeClaim {
				return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kcp", Labels: labels}}
			}
			own := desired.AppLabels(desired.ComponentEtcd, "root")
			s := newEnv(t, namespace, root, claim("data-root-etcd-0", own), claim("data-root-etcd-2", own),
				claim("of-a-shard", etcd.ShardVolumeClaimLabels("root")), claim("of-the-user", nil))
			if tc.env != nil {
				tc.env(s)
			}
			left := s.reconcileRoot("root")
			if calls := strings.Join(s.calls, ","); calls != tc.calls {
				t.Errorf("calls are %q, want %q", calls, tc.calls)
			}
			if (left == nil) != (tc.text == "") {
				t.Fatalf("gone: %t, want %t", left == nil, tc.text == "")
			}
			var claims corev1.PersistentVolumeClaimList
			if err := s.client.List(t.Context(), &claims); err != nil {
				t.Fatal(err)
			}
			if left == nil {
				want := 2
				if tc.external {
					want = 4
				}
				if len(claims.Items) != want {
					t.Errorf("%d volume claims remain, want %d", len(claims.Items), want)
				}
				return
			}
			if len(claims.Items) != 4 {
				t.Errorf("%d volume claims remain", len(claims.Items))
			}
			condition := meta.FindStatusCondition(left.Status.Conditions, operatorv1alpha1.ConditionWorkspacesGone)
			if condition == nil || !strings.Contains(condition.Message, tc.text) || left.Status.Phase != operatorv1alpha1.RootShardPhaseDeleting {
				t.Errorf("phase %s, condition %+v", left.Status.Phase, condition)
			}
		})
	}
}

// TestRootShardFinalizer checks that a RootShard has the finalizer after its server has served, and that the volumes of its etcd are then
// retained if the StatefulSet is deleted.
func TestRootShardFinalizer(t *testing.T) {
	root := newRootShard()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Name: "root-kcp", Namespace: "kcp", OwnerReferences: desired.NewOwnerReferences("RootShard", root),
	}}
	deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: desired.AppLabels(desired.ComponentRootShard, "root")}
	s := newEnv(t, root, deployment)
	if have := s.reconcileRoot("root"); len(have.Finalizers) > 0 {
		t.Errorf("before it served: %v", have.Finalizers)
	}
	deployment.Status.ReadyReplicas = 1
	if err := s.client.Status().Update(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
	if have := s.reconcileRoot("root"); len(have.Finalizers) != 1 {
		t.Errorf("afterwards: %v", have.Finalizers)
	}
}
