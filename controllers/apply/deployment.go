package apply

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/atoll-dev/atoll/controllers/desired"
)

// replicasManager owns the number of replicas if the spec omits it. It is a separate field manager, so that the operator sets the number
// once, and does not revert later scaling.
const replicasManager = FieldManager + "-initial-replicas"

// ApplyDeployment applies a Deployment. live is the one that exists, or nil. wanted becomes the applied object.
func (c Cluster) ApplyDeployment(ctx context.Context, conditionType string, live, deployment *appsv1.Deployment) error {
	if live == nil {
		if deployment.Spec.Replicas == nil {
			// The Deployment is created with the right number. The next reconcile transfers the number to replicasManager.
			deployment.Spec.Replicas = ptr.To(desired.DefaultReplicas)
		}
		return c.ApplyObject(ctx, conditionType, deployment)
	}
	live = live.DeepCopy() // adoption changes it
	if err := c.adopt(ctx, conditionType, live, deployment); err != nil {
		return err
	}
	if deployment.Spec.Replicas == nil {
		owned, err := hasOtherReplicasOwner(live)
		if err != nil {
			return fmt.Errorf("reading the field manager of the replicas of Deployment %s/%s: %w", live.Namespace, live.Name, err)
		}
		if !owned {
			if err := c.releaseReplicas(ctx, conditionType, live, deployment); err != nil {
				return err
			}
		}
	}
	return c.applyOver(ctx, conditionType, live, deployment)
}

// releaseReplicas makes the number of replicas a field of replicasManager. Otherwise the next apply would remove the field, because it
// has no other owner, and the API server would reset it to 1.
func (c Cluster) releaseReplicas(ctx context.Context, conditionType string, live, deployment *appsv1.Deployment) error {
	return c.applyAs(ctx, replicasManager, conditionType, &appsv1.Deployment{
		TypeMeta:   deployment.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{Name: deployment.Name, Namespace: deployment.Namespace},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To(ptr.Deref(live.Spec.Replicas, desired.DefaultReplicas))},
	})
}

// hasOtherReplicasOwner reports whether another field manager owns spec.replicas. The Deployment controller always owns
// status.replicas, which has the same name.
func hasOtherReplicasOwner(live *appsv1.Deployment) (bool, error) {
	for _, entry := range live.ManagedFields {
		if entry.Manager == FieldManager || entry.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Spec struct {
				Replicas *struct{} `json:"f:replicas"`
			} `json:"f:spec"`
		}
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			return false, err
		}
		if fields.Spec.Replicas != nil {
			return true, nil
		}
	}
	return false, nil
}
