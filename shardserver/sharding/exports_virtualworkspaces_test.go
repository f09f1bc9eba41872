package sharding_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func testVirtualWorkspaceOnConsumerShard(t *testing.T, s *env) {
	view := s.virtualWorkspace(t, "beta", "bob", widgets)
	if _, err := view.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("without permission in the export's workspace: %v", err)
	}
	s.grantRule(t, "alpha", s.provider, "operators", "bob", rbacv1.PolicyRule{
		Verbs: []string{"*"}, APIGroups: []string{"apis.kcp.io"}, Resources: []string{"apiexports/content"}, ResourceNames: []string{"widgets"},
	})
	s.grant(t, "alpha", s.provider, "bob-enters", "system:kcp:workspace:access", "bob")
	shardtesting.Eventually(t, "bob lists the widgets of consumers", func(ctx context.Context) error {
		return checkListed(ctx, view, "first")
	})
	if found, err := s.virtualWorkspace(t, "alpha", "bob", widgets).List(t.Context(), metav1.ListOptions{}); err != nil || len(found.Items) != 0 {
		t.Errorf("a shard without consumers lists %v, %v", found, err)
	}
}

func checkListed(ctx context.Context, view dynamic.ResourceInterface, name string) error {
	found, err := view.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, item := range found.Items {
		if item.GetName() == name {
			return nil
		}
	}
	return fmt.Errorf("%d objects, none of them %s", len(found.Items), name)
}

func testClaimAccepted(t *testing.T, s *env) {
	alice := s.userClient(t, "beta", "alice")
	create(t, alice, s.consumer, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "shown", Namespace: "default"}})
	view := s.virtualWorkspace(t, "beta", "bob", configMaps)
	if err := checkListed(t.Context(), view, "shown"); err == nil {
		t.Fatal("it is listed before the claim is accepted")
	}
	shardtesting.Eventually(t, "the claim is accepted", func(ctx context.Context) error {
		binding := &apisv1alpha2.APIBinding{}
		if err := alice.Get(shardtesting.In(ctx, s.consumer), client.ObjectKey{Name: "widgets"}, binding); err != nil {
			return err
		}
		binding.Spec.PermissionClaims = []apisv1alpha2.AcceptablePermissionClaim{{
			PermissionClaim: apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"*"}},
			Selector:        apisv1alpha2.PermissionClaimSelector{MatchAll: true}, State: apisv1alpha2.ClaimAccepted,
		}}
		return alice.Update(shardtesting.In(ctx, s.consumer), binding)
	})
	shardtesting.Eventually(t, "bob lists the claimed object", func(ctx context.Context) error { return checkListed(ctx, view, "shown") })
}

func (e *env) changeExport(t *testing.T, change func(*apisv1alpha2.APIExport)) {
	t.Helper()
	c := e.masters(t, "alpha")
	shardtesting.Eventually(t, "the export is changed", func(ctx context.Context) error {
		export := &apisv1alpha2.APIExport{}
		if err := c.Get(shardtesting.In(ctx, e.provider), client.ObjectKey{Name: "widgets"}, export); err != nil {
			return err
		}
		change(export)
		return c.Update(shardtesting.In(ctx, e.provider), export)
	})
}
