package dialects

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

// setReady sets the condition Ready to the condition of the first step that has not succeeded, or to true.
func setReady(status *syncagentv1alpha1.PublishedResourceStatus, generation int64, syncs bool) {
	steps := []string{syncagentv1alpha1.ConditionSchemaReady, syncagentv1alpha1.ConditionExported}
	if syncs {
		steps = append(steps, syncagentv1alpha1.ConditionSyncing)
	}
	ready := metav1.Condition{Status: metav1.ConditionTrue, Reason: "Published", ObservedGeneration: generation}
	for _, step := range steps {
		condition := meta.FindStatusCondition(status.Conditions, step)
		if condition == nil {
			ready.Status, ready.Reason, ready.Message = metav1.ConditionUnknown, "Pending", step+" has not been reported yet"
			break
		}
		if condition.Status != metav1.ConditionTrue {
			ready.Status, ready.Reason, ready.Message = condition.Status, condition.Reason, condition.Message
			break
		}
	}
	ready.Type = syncagentv1alpha1.ConditionReady
	meta.SetStatusCondition(&status.Conditions, ready)
}
