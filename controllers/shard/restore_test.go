package shard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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
		"not released": {completed, true},
		"released":     {func(r *operatorv1alpha1.Restore) { completed(r); r.Spec.Release = true }, false},
		"of one shard": {func(r *operatorv1alpha1.Restore) {
			completed(r)
			r.Name, r.Spec.Shard = "other", &operatorv1alpha1.RestoreShard{Name: "alpha"}
		}, true},
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
				if named := slices.ContainsFunc(state.BlockedBy, func(text string) bool { return strings.Contains(text, "is not released, and tokens") }); named != tc.held {
					t.Errorf("blocked by %q", state.BlockedBy)
				}
			})
		}
	}
}

// TestShardRestore: a Restore that has started stops the Shard that names it, and no other one does.
func TestShardRestore(t *testing.T) {
	started := metav1.NewTime(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	for name, tc := range map[string]struct {
		change  func(*operatorv1alpha1.Restore, *operatorv1alpha1.Shard)
		stops   bool
		message string
	}{
		"one that runs": {nil, true, "Restore back (1) replaces the data"},
		"one that has failed later": {func(r *operatorv1alpha1.Restore, _ *operatorv1alpha1.Shard) {
			r.Status.Phase = operatorv1alpha1.RestorePhaseFailed
		}, true, "has failed"},
		"also with a mistake in a field": {func(_ *operatorv1alpha1.Restore, s *operatorv1alpha1.Shard) {
			s.Spec.Etcd = &operatorv1alpha1.EtcdConfig{}
		}, true, "Restore back (1) replaces the data"},
		"also of a RootShard that is gone": {func(r *operatorv1alpha1.Restore, s *operatorv1alpha1.Shard) {
			r.Spec.RootShardRef.Name, s.Spec.RootShard.Reference.Name = "gone", "gone"
		}, true, "Restore back (1) replaces the data"},
		"one that has not started": {func(r *operatorv1alpha1.Restore, _ *operatorv1alpha1.Shard) { r.Status.StartedAt = nil }, false, ""},
		"one that was refused": {func(r *operatorv1alpha1.Restore, _ *operatorv1alpha1.Shard) {
			r.Status.StartedAt, r.Status.Phase = nil, operatorv1alpha1.RestorePhaseFailed
		}, false, ""},
		"one that is completed": {func(r *operatorv1alpha1.Restore, _ *operatorv1alpha1.Shard) {
			r.Status.Phase = operatorv1alpha1.RestorePhaseCompleted
		}, false, ""},
		"one of another shard":          {func(r *operatorv1alpha1.Restore, _ *operatorv1alpha1.Shard) { r.Spec.Shard.Name = "beta" }, false, ""},
		"one of the whole installation": {func(r *operatorv1alpha1.Restore, _ *operatorv1alpha1.Shard) { r.Spec.Shard = nil }, false, ""},
		"one of another installation":   {func(r *operatorv1alpha1.Restore, _ *operatorv1alpha1.Shard) { r.Spec.RootShardRef.Name = "other" }, false, ""},
		"one that is withdrawn for another one, until it has ended": {func(_ *operatorv1alpha1.Restore, s *operatorv1alpha1.Shard) {
			s.Annotations[operatorv1alpha1.AnnotationRestore] = "other"
		}, true, "Restore back (1) replaces the data"},
		"one that is withdrawn, until it has ended": {func(_ *operatorv1alpha1.Restore, s *operatorv1alpha1.Shard) { s.Annotations = nil }, true, "Restore back (1) replaces the data"},
		"one that is withdrawn, and has failed": {func(r *operatorv1alpha1.Restore, s *operatorv1alpha1.Shard) {
			s.Annotations, r.Status.Phase = nil, operatorv1alpha1.RestorePhaseFailed
		}, false, ""},
		"one that has not started, and that no Shard names": {func(r *operatorv1alpha1.Restore, s *operatorv1alpha1.Shard) {
			s.Annotations, r.Status.StartedAt = nil, nil
		}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			shard := newShard(func(s *operatorv1alpha1.Shard) {
				s.Annotations = map[string]string{operatorv1alpha1.AnnotationRestore: "back"}
			})
			restore := &operatorv1alpha1.Restore{
				ObjectMeta: metav1.ObjectMeta{Name: "back", Namespace: "kcp", UID: "1"}, Status: operatorv1alpha1.RestoreStatus{Phase: operatorv1alpha1.RestorePhaseRunning, StartedAt: &started},
				Spec: operatorv1alpha1.RestoreSpec{RootShardRef: corev1.LocalObjectReference{Name: "root"}, Shard: &operatorv1alpha1.RestoreShard{Name: "alpha"}},
			}
			if tc.change != nil {
				tc.change(restore, shard)
			}
			owned := func(name string, owner *operatorv1alpha1.Shard) metav1.ObjectMeta {
				return metav1.ObjectMeta{Name: name, Namespace: "kcp", OwnerReferences: desired.NewOwnerReferences("Shard", owner)}
			}
			other := newShard(func(s *operatorv1alpha1.Shard) { s.Name, s.UID = "beta", "beta" })
			workloads := []client.Object{
				&appsv1.Deployment{ObjectMeta: owned("alpha-shard-kcp", shard), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{}}},
				&appsv1.StatefulSet{ObjectMeta: owned("alpha-etcd", shard), Spec: appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{}}},
				&appsv1.Deployment{ObjectMeta: owned("beta-shard-kcp", other), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{}}},
			}
			s := newEnv(t, append([]client.Object{newRootShard(), shard, restore}, workloads...)...)
			s.reconcileRoot("root")
			for range 2 {
				s.reconcile()
			}
			for i, workload := range workloads {
				err := s.client.Get(t.Context(), client.ObjectKeyFromObject(workload), workload)
				if wantGone := tc.stops && i < 2; (err != nil) != wantGone {
					t.Errorf("reading %s: %v", workload.GetName(), err)
				}
			}
			available := meta.FindStatusCondition(s.getShard().Status.Conditions, operatorv1alpha1.ConditionAvailable)
			if waits := available != nil && available.Reason == operatorv1alpha1.ReasonAwaitsRestore; waits != tc.stops || waits && !strings.Contains(available.Message, tc.message) {
				t.Errorf("got %+v", available)
			}
		})
	}
}

// TestStopOfForeignWorkloads: a Deployment of somebody else is not deleted, whatever its name is.
func TestStopOfForeignWorkloads(t *testing.T) {
	started := metav1.Now()
	shard := newShard(func(s *operatorv1alpha1.Shard) {
		s.Annotations = map[string]string{operatorv1alpha1.AnnotationRestore: "back"}
	})
	foreign := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "alpha-shard-kcp", Namespace: "kcp"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{}}}
	s := newEnv(t, newRootShard(), shard, foreign, &operatorv1alpha1.Restore{
		ObjectMeta: metav1.ObjectMeta{Name: "back", Namespace: "kcp"}, Status: operatorv1alpha1.RestoreStatus{Phase: operatorv1alpha1.RestorePhaseRunning, StartedAt: &started},
		Spec: operatorv1alpha1.RestoreSpec{RootShardRef: corev1.LocalObjectReference{Name: "root"}, Shard: &operatorv1alpha1.RestoreShard{Name: "alpha"}},
	})
	s.reconcileRoot("root")
	s.reconcile()
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign); err != nil {
		t.Error(err)
	}
}

// newShardRestore is a Restore of Shard alpha that has started, and the Shard, which names it.
func newShardRestore() (*operatorv1alpha1.Restore, *operatorv1alpha1.Shard) {
	started := metav1.Now()
	restore := &operatorv1alpha1.Restore{
		ObjectMeta: metav1.ObjectMeta{Name: "back", Namespace: "kcp", UID: "1"}, Status: operatorv1alpha1.RestoreStatus{Phase: operatorv1alpha1.RestorePhaseRunning, StartedAt: &started},
		Spec: operatorv1alpha1.RestoreSpec{RootShardRef: corev1.LocalObjectReference{Name: "root"}, Shard: &operatorv1alpha1.RestoreShard{Name: "alpha"}},
	}
	return restore, newShard(func(s *operatorv1alpha1.Shard) {
		s.Annotations = map[string]string{operatorv1alpha1.AnnotationRestore: "back"}
	})
}

// TestStartBeforeRestore: a Shard that is created with the name of its Restore does not start with an etcd that this would have to discard.
func TestStartBeforeRestore(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*operatorv1alpha1.Restore, *operatorv1alpha1.Shard)
		held   bool
	}{
		"one that has not started": {func(*operatorv1alpha1.Restore, *operatorv1alpha1.Shard) {}, true},
		"one that nobody has read": {func(r *operatorv1alpha1.Restore, _ *operatorv1alpha1.Shard) { r.Status.Phase = "" }, true},
		"one that was refused": {func(r *operatorv1alpha1.Restore, _ *operatorv1alpha1.Shard) {
			r.Status.Phase = operatorv1alpha1.RestorePhaseFailed
		}, false},
		"one of another shard":    {func(r *operatorv1alpha1.Restore, _ *operatorv1alpha1.Shard) { r.Spec.Shard.Name = "beta" }, false},
		"a Shard that names none": {func(_ *operatorv1alpha1.Restore, s *operatorv1alpha1.Shard) { s.Annotations = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			restore, shard := newShardRestore()
			restore.Status.StartedAt, restore.Status.Phase = nil, operatorv1alpha1.RestorePhasePending
			tc.change(restore, shard)
			s := newEnv(t, newRootShard(), restore, shard)
			s.reconcileRoot("root")
			s.reconcile()
			available := meta.FindStatusCondition(s.getShard().Status.Conditions, operatorv1alpha1.ConditionAvailable)
			if held := available != nil && available.Reason == operatorv1alpha1.ReasonAwaitsRestore && strings.Contains(available.Message, "Restore back fills the etcd of this shard before it starts"); held != tc.held {
				t.Errorf("got %+v", available)
			}
			if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: "kcp", Name: "alpha-etcd-record"}, &corev1.ConfigMap{}); (err != nil) != tc.held {
				t.Errorf("reading an object of its etcd: %v", err)
			}
		})
	}
}

// TestDeletionWhileStopped names the ways out of a deletion that waits for a shard which a Restore has stopped.
func TestDeletionWhileStopped(t *testing.T) {
	restore, shard := newShardRestore()
	shard.DeletionTimestamp, shard.Finalizers = &metav1.Time{Time: time.Now()}, []string{operatorv1alpha1.FinalizerShard}
	s := newEnv(t, newRootShard(), restore, shard)
	s.reconcileRoot("root")
	s.countErr = errors.New("no connection")
	s.reconcile()
	gone := meta.FindStatusCondition(s.getShard().Status.Conditions, operatorv1alpha1.ConditionWorkspacesGone)
	if gone == nil || !strings.Contains(gone.Message, "Restore back (1) replaces the data") || !strings.Contains(gone.Message, "remove the annotation operator.kcp.io/restore, or set the annotation operator.kcp.io/force-delete=true") {
		t.Errorf("got %+v", gone)
	}
}

// TestStopOfUncachedWorkloads: what the cache does not have yet is stopped, too, and exists until its pods have ended.
func TestStopOfUncachedWorkloads(t *testing.T) {
	restore, shard := newShardRestore()
	server := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "alpha-shard-kcp", Namespace: "kcp", OwnerReferences: desired.NewOwnerReferences("Shard", shard)}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{}}}
	s := newEnv(t, newRootShard(), shard, restore, server)
	live, policy := s.client.(client.WithWatch), metav1.DeletionPropagation("")
	s.live = live
	s.client = interceptor.NewClient(live, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, isDeployment := object.(*appsv1.Deployment); isDeployment && key.Name == server.Name {
				return apierrors.NewNotFound(appsv1.Resource("deployments"), key.Name)
			}
			return c.Get(ctx, key, object, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			policy = *(&client.DeleteOptions{}).ApplyOptions(options).PropagationPolicy
			return c.Delete(ctx, object, options...)
		},
	})
	s.reconcileRoot("root")
	s.reconcile()
	if err := live.Get(t.Context(), client.ObjectKeyFromObject(server), server); !apierrors.IsNotFound(err) || policy != metav1.DeletePropagationForeground {
		t.Errorf("%v, deleted with propagation %q", err, policy)
	}
}
