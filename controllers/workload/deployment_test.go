package workload

import (
	"testing"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/status"
)

func TestSplitResult(t *testing.T) {
	const available = operatorv1alpha1.ConditionAvailable
	serving := status.OK(available, operatorv1alpha1.ReasonReplicasUp, "all pods are ready")
	none := status.Wait(available, operatorv1alpha1.ReasonDeploymentUnavailable, "no Deployment yet")
	for name, tc := range map[string]struct {
		result, observed status.Result
		running          bool
		pods, honored    string // messages; "" is no result
	}{
		"a missing Secret does not change pods that serve": {
			status.Wait(available, "SecretNotFound", "create it"), serving, true, "all pods are ready", "create it"},
		"nor does a rejected Deployment": {
			status.Stall(available, "Rejected", "correct it"), serving, true, "all pods are ready", "correct it"},
		"without pods both are reported": {
			status.Wait(available, "SecretNotFound", "create it"), none, false, "no Deployment yet", "create it"},
		"pending certificates are no obstacle": {
			status.Wait(available, apply.ReasonWaitingForCertificates, "waiting for a CA"), none, false, "waiting for a CA", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pods, obstacle := splitResult(tc.result, tc.observed, tc.running)
			honored := ""
			if obstacle != nil {
				honored = obstacle.Message
				if obstacle.Type != operatorv1alpha1.ConditionSpecHonored || obstacle.State != tc.result.State {
					t.Errorf("the obstacle is %+v", obstacle)
				}
			}
			if pods.Type != available || pods.Message != tc.pods || honored != tc.honored {
				t.Errorf("got %+v and %q", pods, honored)
			}
		})
	}
}
