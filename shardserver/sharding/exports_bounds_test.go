package sharding_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func testRemoteMaximalPermissionPolicy(t *testing.T, s *env) {
	s.changeExport(t, func(export *apisv1alpha2.APIExport) {
		export.Spec.MaximalPermissionPolicy = &apisv1alpha2.MaximalPermissionPolicy{Local: &apisv1alpha2.LocalAPIExportPolicy{}}
	})
	resource := s.widgets(t, "beta", "alice", s.consumer)
	eventuallyForbidden(t, resource, "bounded", "")
	s.grantRule(t, "alpha", s.provider, "bounds", "apis.kcp.io:binding:alice", rbacv1.PolicyRule{
		Verbs: []string{"get", "list", "create"}, APIGroups: []string{"example.io"}, Resources: []string{"widgets"},
	})
	eventuallyCreate(t, resource, "bounded")
	if err := resource.Delete(t.Context(), "bounded", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a request that the maximal permission policy does not permit: %v", err)
	}
}

func testRemoteAdmissionPolicy(t *testing.T, s *env) {
	c := s.masters(t, "alpha")
	create(t, c, s.provider, &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "names"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.io"}, APIVersions: []string{"v1"}, Resources: []string{"widgets"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: `!object.metadata.name.startsWith("bad")`, Message: "denied by the provider"}},
		},
	})
	create(t, c, s.provider, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "names"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "names", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	})
	create(t, c, s.provider, &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "labels"},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.io"}, APIVersions: []string{"v1"}, Resources: []string{"widgets"}},
				},
			}}},
			MatchConditions:    []admissionregistrationv1.MatchCondition{{Name: "names", Expression: `object.metadata.name.startsWith("labelled")`}},
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{PatchType: admissionregistrationv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
				Expression: `Object{metadata: Object.metadata{labels: {"by": "provider"}}}`,
			}}},
		},
	})
	create(t, c, s.provider, &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "labels"}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "labels"},
	})
	resource := s.widgets(t, "beta", "alice", s.consumer)
	eventuallyForbidden(t, resource, "bad", "denied by the provider")
	eventuallyCreate(t, resource, "good")
	shardtesting.Eventually(t, "the label of the provider", func(ctx context.Context) error {
		labelled := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.io/v1", "kind": "Widget", "metadata": map[string]any{"name": "labelled"}}}
		created, err := resource.Create(ctx, labelled, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && created.GetLabels()["by"] != "provider" {
			err = fmt.Errorf("labels %v", created.GetLabels())
		}
		return err
	})
}

func testRemoteServiceAccount(t *testing.T, s *env) {
	c := s.masters(t, "alpha")
	create(t, c, s.provider, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "operator", Namespace: "default"}})
	create(t, c, s.provider, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "operator"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "operators"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "operator", Namespace: "default"}},
	})
	alpha := s.shards["alpha"]
	issued, err := alpha.Kubernetes(t, shardtesting.At(alpha.Masters(t), s.provider)).CoreV1().ServiceAccounts("default").
		CreateToken(t.Context(), "operator", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(s.shards["beta"].Masters(t))
	config.Host = strings.TrimSuffix(config.Host, "/") + "/services/apiexport/" + s.provider + "/widgets/clusters/*"
	config.BearerToken = issued.Status.Token
	view := dynamic.NewForConfigOrDie(config).Resource(widgets)
	shardtesting.Eventually(t, "the operator lists the widgets of consumers", func(ctx context.Context) error { return checkListed(ctx, view, "first") })
	config.BearerToken = issued.Status.Token + "x"
	if _, err := dynamic.NewForConfigOrDie(config).Resource(widgets).List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token without a valid signature: %v", err)
	}
}
