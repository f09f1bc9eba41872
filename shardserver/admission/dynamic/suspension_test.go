package dynamic_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// expensive is an expression that is refused before it runs: its list would be above the cost limit.
const expensive = `lists.range(2000000).size() > 0`

// testSuspension uses each kind of expression until it is suspended.
func testSuspension(t *testing.T, shard *shardtesting.Shard) {
	fail := admissionregistrationv1.Fail
	for name, test := range map[string]struct {
		create func(*testing.T, kubernetes.Interface)
		object string
	}{
		"a validation": {func(t *testing.T, c kubernetes.Interface) {
			createPolicy(t, c, newPolicy("expensive", expensive), newBinding("expensive"))
		}, "validatingadmissionpolicies/expensive"},
		"a match condition of a policy": {func(t *testing.T, c kubernetes.Interface) {
			createPolicy(t, c, newPolicy("expensive", "true", func(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) {
				spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "expensive", Expression: expensive}}
			}), newBinding("expensive"))
		}, "validatingadmissionpolicies/expensive"},
		"a variable": {func(t *testing.T, c kubernetes.Interface) {
			createPolicy(t, c, newPolicy("expensive", "variables.large", func(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) {
				spec.Variables = []admissionregistrationv1.Variable{{Name: "large", Expression: expensive}}
			}), newBinding("expensive"))
		}, "validatingadmissionpolicies/expensive"},
		"a mutation": {func(t *testing.T, c kubernetes.Interface) {
			policy := &admissionregistrationv1.MutatingAdmissionPolicy{
				ObjectMeta: metav1.ObjectMeta{Name: "expensive"},
				Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
					MatchConstraints: configMapConstraints, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy, FailurePolicy: &fail,
					Mutations: []admissionregistrationv1.Mutation{{
						PatchType: admissionregistrationv1.PatchTypeJSONPatch,
						JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `lists.range(2000000).map(x, JSONPatch{op: "add", path: "/metadata/labels", value: {}})`},
					}},
				},
			}
			if _, err := c.AdmissionregistrationV1().MutatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "expensive"}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "expensive"}}
			if _, err := c.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}, "mutatingadmissionpolicies/expensive"},
		"a match condition of a webhook": {func(t *testing.T, c kubernetes.Interface) {
			url := "https://webhook.example.com"
			configuration := newValidatingConfiguration("expensive", admissionregistrationv1.WebhookClientConfig{URL: &url}, func(webhook *admissionregistrationv1.ValidatingWebhook) {
				webhook.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "expensive", Expression: expensive}}
				webhook.FailurePolicy = &fail
			})
			if _, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), configuration, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}, "validatingwebhookconfigurations/expensive"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, cluster := createWorkspace(t, shard, "expensive-"+strings.ReplaceAll(name, " ", "-"))
			test.create(t, c)
			waitRefusedWith(t, c, "cost limit exceeded")
			waitRefusedWith(t, c, "the expressions of "+test.object+" have exceeded their cost limit 4 times and are suspended for 10s")
			waitForSuspensionCondition(t, shard, cluster, test.object)
			other, _ := createWorkspace(t, shard, "other-"+strings.ReplaceAll(name, " ", "-"))
			waitCreated(t, other, "free")
		})
	}
	t.Run("a repaired policy applies at once", func(t *testing.T) {
		t.Parallel()
		c, _ := createWorkspace(t, shard, "expensive-repaired")
		createPolicy(t, c, newPolicy("expensive", expensive), newBinding("expensive"))
		waitRefusedWith(t, c, "are suspended for")
		policy, err := c.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), "expensive", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		policy.Spec.Validations[0].Expression = "object.metadata.name != 'x'"
		if _, err := c.AdmissionregistrationV1().ValidatingAdmissionPolicies().Update(t.Context(), policy, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		waitCreated(t, c, "y")
		if refusal := waitDenied(t, c, "x"); !strings.Contains(refusal.Error(), "refused by expensive") {
			t.Errorf("got %v", refusal)
		}
	})
	t.Run("an expression that always exceeds the limit is refused", func(t *testing.T) {
		t.Parallel()
		c, _ := createWorkspace(t, shard, "expensive-refused")
		policy := newPolicy("expensive", "lists.range(2000000) == lists.range(2000000)")
		_, err := c.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "spec.validations[0].expression") || !strings.Contains(err.Error(), "whenever it is evaluated") {
			t.Errorf("got %v", err)
		}
	})
}

// waitRefusedWith creates config maps until the error contains a text.
func waitRefusedWith(t *testing.T, c kubernetes.Interface, text string) {
	t.Helper()
	shardtesting.Eventually(t, "a refusal with "+text, func(ctx context.Context) error {
		_, err := dryRunCreate(ctx, c, "x", nil)
		if err == nil || !strings.Contains(err.Error(), text) {
			return fmt.Errorf("got error %v", err)
		}
		return nil
	})
}

func waitForSuspensionCondition(t *testing.T, shard *shardtesting.Shard, cluster, object string) {
	t.Helper()
	typed := shard.Client(t, shard.Admin(t))
	shardtesting.Eventually(t, "the condition of "+object, func(ctx context.Context) error {
		var stored corev1alpha1.LogicalCluster
		if err := typed.Get(shardtesting.In(ctx, cluster), client.ObjectKey{Name: corev1alpha1.LogicalClusterName}, &stored); err != nil {
			return err
		}
		message := conditionsv1alpha1.GetMessage(&stored, corev1alpha1.ExpressionsWithinCostLimit)
		if !conditionsv1alpha1.IsFalse(&stored, corev1alpha1.ExpressionsWithinCostLimit) || !strings.HasPrefix(message, object+":") {
			return fmt.Errorf("it has the message %q", message)
		}
		return nil
	})
}
