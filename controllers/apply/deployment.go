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

// replicasManager owns the number of pods where the spec leaves it out. It is a manager of its own so that the number is
// set once and never again: whoever scales the Deployment afterwards is not overruled.
const replicasManager = FieldManager + "-initial-replicas"

// Deployment applies a Deployment. live is the one that exists, or nil. Afterwards wanted is the one in the cluster.
func (c Cluster) Deployment(ctx context.Context, conditionType string, live, wanted *appsv1.Deployment) error {
	switch {
	case wanted.Spec.Replicas != nil:
	case live == nil:
		// It starts with the right number at once. The next time it is looked at, the number changes hands.
		wanted.Spec.Replicas = ptr.To(desired.DefaultReplicas)
	default:
		owned, err := othersOwnReplicas(live)
		if err != nil {
			return fmt.Errorf("reading who owns the replicas of Deployment %s/%s: %w", live.Namespace, live.Name, err)
		}
		if owned {
			break
		}
		// The operator is about to let go of a field that nobody else holds, which would make it 1.
		number := &appsv1.Deployment{
			TypeMeta:   wanted.TypeMeta,
			ObjectMeta: metav1.ObjectMeta{Name: wanted.Name, Namespace: wanted.Namespace},
			Spec:       appsv1.DeploymentSpec{Replicas: ptr.To(ptr.Deref(live.Spec.Replicas, desired.DefaultReplicas))},
		}
		if err := c.as(ctx, replicasManager, conditionType, number); err != nil {
			return err
		}
	}
	return c.Object(ctx, conditionType, wanted)
}

// othersOwnReplicas says whether somebody beside the operator holds the wanted number of pods. The number that is
// reported in the status has the same name, and the Deployment controller always holds that.
func othersOwnReplicas(live *appsv1.Deployment) (bool, error) {
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
