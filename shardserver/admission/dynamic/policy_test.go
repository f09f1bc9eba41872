package dynamic_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

var configMapConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
	RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	},
}}}

func newPolicy(name, expression string, changes ...func(*admissionregistrationv1.ValidatingAdmissionPolicySpec)) *admissionregistrationv1.ValidatingAdmissionPolicy {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: configMapConstraints,
			Validations:      []admissionregistrationv1.Validation{{Expression: expression, Message: "refused by " + name}},
		},
	}
	for _, change := range changes {
		change(&policy.Spec)
	}
	return policy
}

func newBinding(name string, changes ...func(*admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec)) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	for _, change := range changes {
		change(&binding.Spec)
	}
	return binding
}

func createPolicy(t *testing.T, c kubernetes.Interface, policy *admissionregistrationv1.ValidatingAdmissionPolicy, bindings ...*admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	t.Helper()
	if _, err := c.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, binding := range bindings {
		if _, err := c.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func testParameters(t *testing.T, shard *shardtesting.Shard) {
	a, _ := createWorkspace(t, shard, "params-a")
	b, _ := createWorkspace(t, shard, "params-b")
	for client, prefix := range map[kubernetes.Interface]string{a: "a-", b: "b-"} {
		params := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "limits", Labels: map[string]string{"role": "limits"}}, Data: map[string]string{"prefix": prefix}}
		if _, err := client.CoreV1().ConfigMaps("kube-system").Create(t.Context(), params, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		deny := admissionregistrationv1.DenyAction
		createPolicy(t, client,
			newPolicy("named", `object.metadata.name.startsWith(params.data.prefix)`, func(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) {
				spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
				spec.Variables = []admissionregistrationv1.Variable{{Name: "mode", Expression: `namespaceObject.metadata.name`}}
				spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "not-system", Expression: `!object.metadata.name.startsWith("kube-")`}}
				spec.Validations[0].MessageExpression = `"in " + variables.mode + " names begin with " + params.data.prefix`
			}),
			newBinding("named", func(spec *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec) {
				spec.ParamRef = &admissionregistrationv1.ParamRef{
					Namespace: "kube-system", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "limits"}}, ParameterNotFoundAction: &deny,
				}
			}))
	}
	for client, prefix := range map[kubernetes.Interface]string{a: "a-", b: "b-"} {
		if refusal := waitDenied(t, client, "x"); !strings.Contains(refusal.Error(), "in default names begin with "+prefix) || !apierrors.IsInvalid(refusal) {
			t.Errorf("got %v", refusal)
		}
		waitCreated(t, client, prefix+"x")
		waitCreated(t, client, "kube-x")
	}
	if err := a.CoreV1().ConfigMaps("kube-system").Delete(t.Context(), "limits", metav1.DeleteOptions{}); err != nil {
		// The policy applies to the deletion, too, which has no object, so that the expression fails.
		if !strings.Contains(err.Error(), "no such key") {
			t.Fatal(err)
		}
	}
	t.Run("of a kind that is not served", func(t *testing.T) {
		c, _ := createWorkspace(t, shard, "params-unknown")
		createPolicy(t, c, newPolicy("unknown", "true", func(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) {
			spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "example.com/v1", Kind: "Limit"}
		}), newBinding("unknown"))
		if refusal := waitDenied(t, c, "x"); !strings.Contains(refusal.Error(), "failed to find resource referenced by paramKind") {
			t.Errorf("got %v", refusal)
		}
	})
}

// testPolicyUpdatedUnderLoad checks that every request is decided either by the old or by the new policy.
func testPolicyUpdatedUnderLoad(t *testing.T, shard *shardtesting.Shard) {
	c, _ := createWorkspace(t, shard, "updated")
	createPolicy(t, c, newPolicy("changing", `object.metadata.name != "v0"`), newBinding("changing"))
	_ = waitDenied(t, c, "v0")
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for ctx.Err() == nil {
				if _, err := dryRunCreate(ctx, c, "always", nil); err != nil && ctx.Err() == nil {
					t.Errorf("got %v", err)
				}
			}
		})
	}
	policies := c.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	for version := 1; version < 10; version++ {
		shardtesting.Eventually(t, "the update of the policy", func(ctx context.Context) error {
			current, err := policies.Get(ctx, "changing", metav1.GetOptions{})
			if err != nil {
				return err
			}
			current.Spec.Validations[0].Expression = fmt.Sprintf(`object.metadata.name != "v%d"`, version)
			_, err = policies.Update(ctx, current, metav1.UpdateOptions{})
			return err
		})
		_ = waitDenied(t, c, fmt.Sprint("v", version))
		waitCreated(t, c, fmt.Sprint("v", version-1))
	}
	stop()
	group.Wait()
}

func testMutatingPolicy(t *testing.T, shard *shardtesting.Shard) {
	c, _ := createWorkspace(t, shard, "mutating-policy")
	policies := &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "mutate"},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints:   configMapConstraints,
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{
				{PatchType: admissionregistrationv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
					Expression: `Object{metadata: Object.metadata{labels: {"applied": request.name}}}`,
				}},
				{PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{
					Expression: `[JSONPatch{op: "add", path: "/metadata/labels/patched", value: namespaceObject.metadata.name}]`,
				}},
			},
		},
	}
	if _, err := c.AdmissionregistrationV1().MutatingAdmissionPolicies().Create(t.Context(), policies, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bindings := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "mutate"}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "mutate"},
	}
	if _, err := c.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Create(t.Context(), bindings, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "both labels", func(ctx context.Context) error {
		created, err := dryRunCreate(ctx, c, "mutated", map[string]string{"own": "label"})
		if err != nil {
			return err
		}
		if created.Labels["applied"] != "mutated" || created.Labels["patched"] != "default" || created.Labels["own"] != "label" || created.Data["key"] != "value" {
			return fmt.Errorf("got %v", created)
		}
		return nil
	})
}

func testParamAuthorization(t *testing.T, shard *shardtesting.Shard) {
	c, cluster := createWorkspace(t, shard, "param-authorization")
	user := newRestrictedClient(t, shard, c, cluster,
		rbacv1.PolicyRule{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"}})
	of := func(name, kind string) error {
		_, err := user.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), newPolicy(name, "true", func(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) {
			spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: kind}
		}), metav1.CreateOptions{})
		return err
	}
	shardtesting.Eventually(t, "a policy with readable parameters", func(context.Context) error { return of("readable", "ConfigMap") })
	if err := of("secret", "Secret"); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `must have "get" permission`) {
		t.Errorf("got %v", err)
	}
}

func testPolicyStatus(t *testing.T, shard *shardtesting.Shard) {
	c, _ := createWorkspace(t, shard, "policy-status")
	createPolicy(t, c, newPolicy("typo", `object.metadata.nme == "x"`))
	createPolicy(t, c, newPolicy("right", `object.metadata.name == "x" && object.data["key"] == "y"`))
	checked := func(name string) (status admissionregistrationv1.ValidatingAdmissionPolicyStatus) {
		shardtesting.Eventually(t, "policy "+name+" to be checked", func(ctx context.Context) error {
			policy, err := c.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
			if err == nil && policy.Status.ObservedGeneration != policy.Generation {
				err = fmt.Errorf("status %+v", policy.Status)
			}
			if err == nil {
				status = policy.Status
			}
			return err
		})
		return status
	}
	status := checked("typo")
	if len(status.TypeChecking.ExpressionWarnings) != 1 || !strings.Contains(status.TypeChecking.ExpressionWarnings[0].Warning, "undefined field 'nme'") {
		t.Errorf("got %+v", status.TypeChecking)
	}
	if status := checked("right"); len(status.TypeChecking.ExpressionWarnings) != 0 {
		t.Errorf("got %+v", status.TypeChecking)
	}
}

// testDeletion deletes a workspace whose webhook and policy deny every deletion.
func testDeletion(t *testing.T, shard *shardtesting.Shard) {
	c, _ := createWorkspace(t, shard, "deleted")
	gone := newWebhookServer(t, allow)
	gone.Close()
	everything := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete, admissionregistrationv1.Update},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}
	if _, err := c.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	createPolicy(t, c, newPolicy("never", "false", func(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) {
		spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: everything}}}
	}), newBinding("never"))
	createValidating(t, c, newValidatingConfiguration("gone", gone.clientConfig(), func(w *admissionregistrationv1.ValidatingWebhook) {
		w.Rules = []admissionregistrationv1.RuleWithOperations{everything}
	}))
	shardtesting.Eventually(t, "deletions to be denied", func(ctx context.Context) error {
		if err := c.CoreV1().Secrets("default").Delete(ctx, "kept", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
			return fmt.Errorf("not denied")
		}
		return nil
	})
	admin := shard.Client(t, shard.Admin(t))
	workspace := shard.WaitReady(t, "root", "deleted")
	if err := admin.Delete(shardtesting.In(t.Context(), "root"), workspace); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	shardtesting.Eventually(t, "the workspace to be deleted", func(ctx context.Context) error {
		err := admin.Get(shardtesting.In(ctx, "root"), clientKey("deleted"), workspace)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if time.Now().After(deadline) {
			t.Fatalf("it exists: %+v", workspace.Status.Conditions)
		}
		return fmt.Errorf("it exists: %+v, %v", workspace.Status.Conditions, err)
	})
}
