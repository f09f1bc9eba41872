package dynamic_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

func widgetDefinition() *apiextensionsv1.CustomResourceDefinition {
	byKey, key := "map", []string{"name"}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"size": {Type: "integer"},
						"parts": {Type: "array", XListType: &byKey, XListMapKeys: key, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{
							Type: "object", Required: []string{"name"}, Properties: map[string]apiextensionsv1.JSONSchemaProps{"name": {Type: "string"}, "count": {Type: "integer"}},
						}}},
					}}},
				}},
			}},
		},
	}
}

func widget(name string, size int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"size": size, "parts": []any{map[string]any{"name": "own", "count": int64(1)}}},
	}}
}

// testCustomResources checks that policies and webhooks see custom resources, and read them as parameters, with
// definitions of the same name in two workspaces.
func testCustomResources(t *testing.T, shard *shardtesting.Shard) {
	c, cluster := createWorkspace(t, shard, "custom")
	config := shardtesting.At(shard.Admin(t), cluster)
	definitions, err := apiextensionsclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), widgetDefinition(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	here := client.Resource(widgets).Namespace("default")
	shardtesting.Eventually(t, "the limits to be created", func(ctx context.Context) error {
		_, err := here.Create(ctx, widget("limits", 10), metav1.CreateOptions{})
		return err
	})
	rules := func(operations ...admissionregistrationv1.OperationType) admissionregistrationv1.RuleWithOperations {
		return admissionregistrationv1.RuleWithOperations{Operations: operations, Rule: admissionregistrationv1.Rule{
			APIGroups: []string{"example.com"}, APIVersions: []string{"v1"}, Resources: []string{"widgets"},
		}}
	}
	constraints := &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
		{RuleWithOperations: rules(admissionregistrationv1.Create)},
	}}
	createPolicy(t, c,
		newPolicy("limited", `object.spec.size <= params.spec.size`, func(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) {
			spec.MatchConstraints = constraints
			spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "example.com/v1", Kind: "Widget"}
		}),
		newBinding("limited", func(spec *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec) {
			deny := admissionregistrationv1.DenyAction
			spec.ParamRef = &admissionregistrationv1.ParamRef{Name: "limits", Namespace: "default", ParameterNotFoundAction: &deny}
		}))
	createPolicy(t, c, newPolicy("typo", `object.spec.sise > 1`, func(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) { spec.MatchConstraints = constraints }))
	if _, err := c.AdmissionregistrationV1().MutatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "apply"},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: constraints, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{PatchType: admissionregistrationv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
				Expression: `Object{spec: Object.spec{parts: [Object.spec.parts{name: "added", count: object.spec.size}]}}`,
			}}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "apply"}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "apply"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	createMutating(t, c, newMutatingConfiguration("label", newWebhookServer(t, addLabel("hooked", "yes")).clientConfig(), func(w *admissionregistrationv1.MutatingWebhook) {
		w.Rules = []admissionregistrationv1.RuleWithOperations{rules(admissionregistrationv1.Create)}
	}))

	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	shardtesting.Eventually(t, "widgets to be mutated", func(ctx context.Context) error {
		created, err := here.Create(ctx, widget("small", 5), dryRun)
		if err != nil {
			return err
		}
		parts, _, _ := unstructured.NestedSlice(created.Object, "spec", "parts")
		if created.GetLabels()["hooked"] != "yes" || len(parts) != 2 {
			return fmt.Errorf("got %v", created.Object)
		}
		return nil
	})
	shardtesting.Eventually(t, "large widgets to be denied", func(ctx context.Context) error {
		if _, err := here.Create(ctx, widget("large", 11), dryRun); err == nil || !strings.Contains(err.Error(), "refused by limited") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	shardtesting.Eventually(t, "the policy to be checked", func(ctx context.Context) error {
		policy, err := c.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, "typo", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if status := policy.Status.TypeChecking; status == nil || len(status.ExpressionWarnings) != 1 || !strings.Contains(status.ExpressionWarnings[0].Warning, "undefined field 'sise'") {
			return fmt.Errorf("got %+v", policy.Status)
		}
		return nil
	})
}
