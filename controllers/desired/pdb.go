package desired

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// DisruptionBudget lets a drain evict one pod of a component at a time. A component with fewer than two replicas has none. A component
// whose replicas an autoscaler controls has one, which also allows the eviction of a single pod: a budget must never block the drain of a
// node permanently.
func DisruptionBudget(deployment *appsv1.Deployment) *policyv1.PodDisruptionBudget {
	if ptr.Deref(deployment.Spec.Replicas, DefaultReplicas) < 2 {
		return nil
	}
	return &policyv1.PodDisruptionBudget{
		TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{
			Name: deployment.Name, Namespace: deployment.Namespace,
			Labels:          maps.Clone(deployment.Spec.Selector.MatchLabels),
			OwnerReferences: deployment.OwnerReferences,
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: ptr.To(intstr.FromInt32(1)),
			Selector:       deployment.Spec.Selector.DeepCopy(),
			// Pods that are not ready do not serve; protecting them would only delay the drain.
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
		},
	}
}
