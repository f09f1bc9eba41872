package apply

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/controllers/desired"
)

// replicasManager owns the number of pods where the spec leaves it out. It is a manager of its own so that the number is
// set once and never again: whoever scales the Deployment afterwards is not overruled.
const replicasManager = FieldManager + "-initial-replicas"

// Deployment applies a Deployment. live is the one that exists, or nil. Afterwards wanted is the one in the cluster.
func (c Cluster) Deployment(ctx context.Context, conditionType string, live, wanted *appsv1.Deployment) error {
	if wanted.Spec.Replicas != nil {
		return c.Object(ctx, conditionType, wanted)
	}
	if live == nil {
		if err := c.Object(ctx, conditionType, wanted); err != nil {
			return err
		}
		// One pod more than the first; the Deployment's next event shows it.
		return c.as(ctx, replicasManager, conditionType, replicasOnly(wanted, desired.DefaultReplicas))
	}
	if onlyOperatorOwnsReplicas(live) {
		// The spec named a number before. It stays as it is, in the hands of the other manager.
		if err := c.as(ctx, replicasManager, conditionType, replicasOnly(wanted, ptr.Deref(live.Spec.Replicas, desired.DefaultReplicas))); err != nil {
			return err
		}
	}
	return c.Object(ctx, conditionType, wanted)
}

func replicasOnly(wanted *appsv1.Deployment, replicas int32) client.Object {
	out := &appsv1.Deployment{
		TypeMeta:   wanted.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{Name: wanted.Name, Namespace: wanted.Namespace},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To(replicas)},
	}
	return out
}

// onlyOperatorOwnsReplicas says whether the field would fall back to its default when the operator lets go of it.
func onlyOperatorOwnsReplicas(live *appsv1.Deployment) bool {
	for _, entry := range live.ManagedFields {
		if entry.Manager != FieldManager && entry.FieldsV1 != nil && containsReplicas(entry.FieldsV1.GetRawBytes()) {
			return false
		}
	}
	return true
}
