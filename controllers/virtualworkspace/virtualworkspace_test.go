package virtualworkspace

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/golden"
)

func TestConditions(t *testing.T) {
	ref := func(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }
	address := operatorv1alpha1.ExternalConfig{Hostname: "views.example.com", Port: 443}
	for name, tc := range map[string]struct {
		change    func(*operatorv1alpha1.VirtualWorkspace)
		condition string
		text      string
	}{
		"beside a root shard it waits for certificates": {func(v *operatorv1alpha1.VirtualWorkspace) { v.Spec.Target.RootShardRef = ref("root") },
			operatorv1alpha1.ConditionCertificatesReady, "2 of 2 certificates are not issued yet"},
		"beside a shard too": {func(v *operatorv1alpha1.VirtualWorkspace) { v.Spec.Target.ShardRef = ref("alpha") },
			operatorv1alpha1.ConditionSpecHonored, "CacheServer world, which cache.ref names, does not exist"},
		"a shard that does not exist is named": {func(v *operatorv1alpha1.VirtualWorkspace) { v.Spec.Target.ShardRef = ref("beta") },
			operatorv1alpha1.ConditionReferenceValid, "Shard beta does not exist in namespace kcp: create it, or correct target.shardRef"},
		"a shard without a RootShard is named": {func(v *operatorv1alpha1.VirtualWorkspace) { v.Spec.Target.ShardRef = ref("without-root") },
			operatorv1alpha1.ConditionReferenceValid, "of Shard without-root: rootShard.ref.name is empty"},
		"a root shard that does not exist is named": {func(v *operatorv1alpha1.VirtualWorkspace) { v.Spec.Target.RootShardRef = ref("missing") },
			operatorv1alpha1.ConditionReferenceValid, "RootShard missing does not exist in namespace kcp"},
		"no target is reported": {func(*operatorv1alpha1.VirtualWorkspace) {}, operatorv1alpha1.ConditionReferenceValid, "target names nothing"},
		"no address is rejected": {func(v *operatorv1alpha1.VirtualWorkspace) {
			v.Spec.Target.RootShardRef, v.Spec.External = ref("root"), operatorv1alpha1.ExternalConfig{}
		}, operatorv1alpha1.ConditionSpecHonored, "external.hostname is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			virtualWorkspace := &operatorv1alpha1.VirtualWorkspace{
				ObjectMeta: metav1.ObjectMeta{Name: "views", Namespace: "kcp", UID: "1"}, Spec: operatorv1alpha1.VirtualWorkspaceSpec{External: address},
			}
			tc.change(virtualWorkspace)
			alpha := &operatorv1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "alpha", Namespace: "kcp"}}
			alpha.Spec.RootShard.Reference, alpha.Spec.Cache.Ref = ref("root"), ref("world")
			cluster := memory.NewClient(t, virtualWorkspace, alpha,
				&operatorv1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "without-root", Namespace: "kcp"}},
				&operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp"}, Spec: operatorv1alpha1.RootShardSpec{External: address}})
			r := NewReconciler(reconcile.Config{Cluster: apply.Cluster{Client: cluster}, Recorder: events.NewFakeRecorder(100), Now: time.Now, Image: desired.Image{Repository: "atoll", Tag: "v1"}})
			key := client.ObjectKeyFromObject(virtualWorkspace)
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
				t.Fatal(err)
			}
			if err := cluster.Get(t.Context(), key, virtualWorkspace); err != nil {
				t.Fatal(err)
			}
			condition := meta.FindStatusCondition(virtualWorkspace.Status.Conditions, tc.condition)
			if condition == nil || condition.Status != metav1.ConditionFalse || !strings.Contains(condition.Message, tc.text) {
				t.Errorf("got %+v", condition)
			}
			if virtualWorkspace.Status.Phase != operatorv1alpha1.VirtualWorkspacePhaseProvisioning {
				t.Errorf("phase %s", virtualWorkspace.Status.Phase)
			}
		})
	}
}

func TestFullSamples(t *testing.T) {
	for _, name := range []string{"full/virtualworkspace.yaml", "full/virtualworkspace_custom.yaml"} {
		if result := validateSpec(golden.Sample[operatorv1alpha1.VirtualWorkspace](t, name)); result.State != status.Satisfied {
			t.Errorf("%s: %+v", name, result)
		}
	}
}
