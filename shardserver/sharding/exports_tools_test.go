package sharding_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testRemoteTools binds the export "tools" of the provider on alpha in a workspace on beta.
func testRemoteTools(t *testing.T, s *env) {
	tools := schema.GroupResource{Group: "tools.example.io", Resource: "tools"}
	alpha, beta := s.masters(t, "alpha"), s.masters(t, "beta")
	accounts := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: "serviceaccounts"}, Verbs: []string{"get"}}
	token := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: "serviceaccounts/token"}, Verbs: []string{"create"}}
	export := shardtesting.NewExport(t, alpha, s.provider, "tools", tools, "Tool", func(export *apisv1alpha2.APIExport) {
		export.Spec.PermissionClaims = []apisv1alpha2.PermissionClaim{accounts, token}
	})
	binding := bindingTo(s.provider, "tools")
	binding.Spec.DeletionPolicy = apisv1alpha2.DeletionPolicyWaitForSuccessor
	for _, claim := range export.Spec.PermissionClaims {
		binding.Spec.PermissionClaims = append(binding.Spec.PermissionClaims, apisv1alpha2.AcceptablePermissionClaim{
			PermissionClaim: claim, Selector: apisv1alpha2.PermissionClaimSelector{MatchAll: true}, State: apisv1alpha2.ClaimAccepted,
		})
	}
	shardtesting.Eventually(t, "beta knows the export", func(ctx context.Context) error {
		return beta.Create(shardtesting.In(ctx, s.consumer), binding.DeepCopy())
	})
	waitBound(t, beta, s.consumer, "tools")

	// A token of the consumer's service account, at the view on the consumer's shard.
	path := "/services/apiexport/" + s.provider + "/tools/clusters/" + s.consumer + "/api/v1/namespaces/default/serviceaccounts/default/token"
	shardtesting.Eventually(t, "a token", func(context.Context) error {
		response, body := shardtesting.Send(t, s.shards["beta"].Masters(t), http.MethodPost, path, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`)
		if response.StatusCode != http.StatusCreated || !strings.Contains(body, `"token":"`) {
			return fmt.Errorf("%d: %s", response.StatusCode, body)
		}
		return nil
	})

	// The other scope is refused on the provider's shard; if it arrives all the same, the consumer's shard keeps what is bound.
	next := shardtesting.NewSchema("v2", tools, "Tool")
	next.Spec.Scope = apiextensionsv1.ClusterScoped
	create(t, alpha, s.provider, next)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"resources":[{"name":"tools","group":"tools.example.io","schema":"v2.tools.tools.example.io"}]}}`))
	if err := alpha.Patch(shardtesting.In(t.Context(), s.provider), export.DeepCopy(), patch); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot be served with scope") {
		t.Errorf("another scope: %v", err)
	}
	keys := s.shards["alpha"].Keys(t, "/apiexports/customresources/"+s.provider+"/tools")
	if len(keys) != 1 {
		t.Fatalf("keys are %v", keys)
	}
	s.shards["alpha"].ReplaceInKey(t, keys[0], `"v1.tools.tools.example.io"`, `"v2.tools.tools.example.io"`)
	waitFor := func(what string, check func(*apisv1alpha2.APIBinding) bool) {
		t.Helper()
		shardtesting.Eventually(t, what, func(ctx context.Context) error {
			found := &apisv1alpha2.APIBinding{}
			if err := beta.Get(shardtesting.In(ctx, s.consumer), client.ObjectKeyFromObject(binding), found); err != nil {
				return err
			}
			if !check(found) {
				return fmt.Errorf("status %+v", found.Status)
			}
			return nil
		})
	}
	waitFor("the changed scope is reported", func(found *apisv1alpha2.APIBinding) bool {
		return conditionsv1alpha1.GetReason(found, apisv1alpha2.BindingUpToDate) == apisv1alpha2.APIResourceSchemaInvalidReason &&
			found.Status.BoundResources[0].Schema.Name == "v1.tools.tools.example.io"
	})
	s.shards["alpha"].ReplaceInKey(t, keys[0], `"v2.tools.tools.example.io"`, `"v1.tools.tools.example.io"`)
	waitFor("the export is repaired", func(found *apisv1alpha2.APIBinding) bool {
		return conditionsv1alpha1.IsTrue(found, apisv1alpha2.BindingUpToDate)
	})

	// Deletion waits for a binding to another export of this identity, on the provider's shard.
	objects := dynamic.NewForConfigOrDie(shardtesting.At(s.shards["beta"].Masters(t), s.consumer)).Resource(tools.WithVersion("v1")).Namespace("default")
	tool := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "tools.example.io/v1", "kind": "Tool", "metadata": map[string]any{"name": "kept"}}}
	if _, err := objects.Create(t.Context(), tool, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := beta.Delete(shardtesting.In(t.Context(), s.consumer), binding.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	waitFor("the binding waits", func(found *apisv1alpha2.APIBinding) bool {
		return conditionsv1alpha1.GetReason(found, apisv1alpha2.BindingResourceDeleteSuccess) == apisv1alpha2.WaitingForSuccessorReason
	})
	twin := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "twin"}, Spec: apisv1alpha2.APIExportSpec{Resources: export.Spec.Resources, Identity: export.Spec.Identity}}
	create(t, alpha, s.provider, twin)
	shardtesting.Eventually(t, "beta knows the other export", func(ctx context.Context) error {
		return beta.Create(shardtesting.In(ctx, s.consumer), bindingTo(s.provider, "twin"))
	})
	waitBound(t, beta, s.consumer, "twin")
	shardtesting.Eventually(t, "the object is served by the successor", func(ctx context.Context) error {
		if err := beta.Get(shardtesting.In(ctx, s.consumer), client.ObjectKeyFromObject(binding), binding.DeepCopy()); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the first binding: %w", err)
		}
		_, err := objects.Get(ctx, "kept", metav1.GetOptions{})
		return err
	})
}
