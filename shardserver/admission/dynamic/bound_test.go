package dynamic_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testBoundResources checks that policies of an export's workspace apply to its objects wherever it is bound, with the
// namespaces of the consumer and the parameters of the provider, and that all other objects are subject to the policies
// of the consumer.
func testBoundResources(t *testing.T, shard *shardtesting.Shard) {
	provider, providerName := createWorkspace(t, shard, "bound-provider")
	consumer, consumerName := createWorkspace(t, shard, "bound-consumer")
	gadgets := schema.GroupVersionResource{Group: "gadgets.io", Version: "v1", Resource: "gadgets"}
	shard.NewExport(t, providerName, "gadgets", gadgets.GroupResource(), "Gadget")
	shard.Bind(t, consumerName, providerName, "gadgets")
	objects := dynamic.NewForConfigOrDie(shardtesting.At(shard.Admin(t), consumerName)).Resource(gadgets).Namespace("default")
	try := func(ctx context.Context, name string) (*unstructured.Unstructured, error) {
		gadget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "gadgets.io/v1", "kind": "Gadget", "metadata": map[string]any{"name": name}}}
		return objects.Create(ctx, gadget, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	shardtesting.Eventually(t, "gadgets to be served", func(ctx context.Context) error {
		_, err := try(ctx, "first")
		return err
	})

	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{gadgets.Group, ""}, APIVersions: []string{"v1"}, Resources: []string{"gadgets", "configmaps"}},
	}}
	always := func(webhook *admissionregistrationv1.ValidatingWebhook) { webhook.Rules = rules }
	selective := func(webhook *admissionregistrationv1.MutatingWebhook) {
		webhook.Rules = rules
		webhook.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"mode": "strict"}}
	}
	ours, theirs := newWebhookServer(t, deny("denied by the provider")), newWebhookServer(t, deny("denied by the consumer"))
	labels := newWebhookServer(t, addLabel("seen-by", "provider"))
	labelNamespace(t, consumer, "strict") // the provider's namespace does not have the label
	createValidating(t, consumer, newValidatingConfiguration("consumer", theirs.clientConfig(), always))
	createMutating(t, provider, newMutatingConfiguration("labels", labels.clientConfig(), selective))

	t.Run("webhooks of the provider see the namespaces of the consumer", func(t *testing.T) {
		shardtesting.Eventually(t, "the label of a gadget", func(ctx context.Context) error {
			created, err := try(ctx, "labelled")
			if err == nil && created.GetLabels()["seen-by"] != "provider" {
				err = fmt.Errorf("it has the labels %v", created.GetLabels())
			}
			return err
		})
		labels.mu.Lock()
		defer labels.mu.Unlock()
		var seen metav1.PartialObjectMetadata
		if err := json.Unmarshal(labels.reviews[len(labels.reviews)-1].Object.Raw, &seen); err != nil || seen.Annotations["kcp.io/cluster"] != consumerName {
			t.Errorf("the created object has annotations %v, %v", seen.Annotations, err)
		}
	})
	t.Run("webhooks of the consumer see only its own objects", func(t *testing.T) {
		_ = waitDenied(t, consumer, "own")
		if seen := theirs.requestNames(); slices.Contains(seen, "labelled") || !slices.Contains(seen, "own") {
			t.Errorf("the consumer's webhook saw %v", seen)
		}
		if err := consumer.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(t.Context(), "consumer", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		waitCreated(t, consumer, "own")
	})
	t.Run("webhook of the provider denies", func(t *testing.T) {
		createValidating(t, provider, newValidatingConfiguration("provider", ours.clientConfig(), always))
		waitRefused(t, try, "refused", "denied by the provider")
		if err := provider.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(t.Context(), "provider", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("policies of the provider read parameters of the provider", func(t *testing.T) {
		for c, name := range map[kubernetes.Interface]string{provider: "permitted", consumer: "refused-by-params"} {
			names := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "names", Namespace: "kube-system"}, Data: map[string]string{"name": name}}
			if _, err := c.CoreV1().ConfigMaps("kube-system").Create(t.Context(), names, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		createNamePolicy(t, provider, "names", rules, "object.metadata.name == params.data.name && namespaceObject.metadata.labels.mode == 'strict'")
		waitRefused(t, try, "refused-by-params", "names")
		if _, err := try(t.Context(), "permitted"); err != nil {
			t.Error(err)
		}
	})
	t.Run("policies of the consumer do not apply", func(t *testing.T) {
		createNamePolicy(t, consumer, "nothing", rules, "false")
		_ = waitDenied(t, consumer, "another")
		if _, err := try(t.Context(), "permitted"); err != nil {
			t.Error(err)
		}
	})
}

// waitRefused waits until a request is denied with a text.
func waitRefused(t *testing.T, try func(context.Context, string) (*unstructured.Unstructured, error), name, text string) {
	t.Helper()
	shardtesting.Eventually(t, name+" to be denied", func(ctx context.Context) error {
		if _, err := try(ctx, name); err == nil || !strings.Contains(err.Error(), text) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}

// createNamePolicy creates a policy with the config map "names" as parameters, and its binding.
func createNamePolicy(t *testing.T, c kubernetes.Interface, name string, rules []admissionregistrationv1.RuleWithOperations, expression string) {
	t.Helper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			ParamKind:        &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rules[0]}}},
			Validations:      []admissionregistrationv1.Validation{{Expression: expression, Message: name}},
		},
	}
	if _, err := c.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	missing := admissionregistrationv1.DenyAction
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			ParamRef: &admissionregistrationv1.ParamRef{Name: "names", Namespace: "kube-system", ParameterNotFoundAction: &missing},
		},
	}
	if _, err := c.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
