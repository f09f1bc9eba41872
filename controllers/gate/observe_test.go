package gate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

func TestNotReconciledReason(t *testing.T) {
	condition := func(conditionType string, status metav1.ConditionStatus, generation int64) metav1.Condition {
		return metav1.Condition{Type: conditionType, Status: status, ObservedGeneration: generation, Message: "waiting for Secret s"}
	}
	for name, tc := range map[string]struct {
		conditions []metav1.Condition
		want       string
	}{
		"a new object":             {nil, "its spec is not reconciled yet"},
		"a stalled object":         {[]metav1.Condition{condition("Ready", "False", 2), condition("Stalled", "True", 2)}, "waiting for Secret s"},
		"an object that waits":     {[]metav1.Condition{condition("Ready", "False", 2), condition("Stalled", "False", 2)}, "its spec is not reconciled yet: waiting for Secret s"},
		"an object that waited":    {[]metav1.Condition{condition("Ready", "False", 1)}, "its spec is not reconciled yet"},
		"an object that was ready": {[]metav1.Condition{condition("Ready", "True", 2)}, "its spec is not reconciled yet"},
	} {
		t.Run(name, func(t *testing.T) {
			shard := &operatorv1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: operatorv1alpha1.ShardStatus{Conditions: tc.conditions}}
			if have := notReconciledReason(shard); have != tc.want {
				t.Errorf("got %q, want %q", have, tc.want)
			}
		})
	}
}
