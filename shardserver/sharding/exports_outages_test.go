package sharding_test

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func testProviderShardDown(t *testing.T, s *env) {
	if err := s.shards["alpha"].Stop(); err != nil {
		t.Fatal(err)
	}
	resource := s.widgets(t, "beta", "alice", s.consumer)
	eventuallyCreate(t, resource, "without-provider")
	eventuallyForbidden(t, resource, "bad", "denied by the provider")
	if err := resource.Delete(t.Context(), "without-provider", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the maximal permission policy is no longer enforced: %v", err)
	}
	shardtesting.Bind(t, s.masters(t, "beta"), s.otherConsumer, "root:provider", "widgets")
	if err := checkListed(t.Context(), s.virtualWorkspace(t, "beta", "bob", widgets), "without-provider"); err != nil {
		t.Errorf("bob cannot list: %v", err)
	}
}

func testCacheDown(t *testing.T, s *env) {
	peer := s.shards["root"].Peer(t, "beta")
	for _, name := range []string{"root", "beta"} {
		if err := s.shards[name].Stop(); err != nil {
			t.Fatal(err)
		}
	}
	// The shard starts while all others are down: it uses the persisted replicas.
	s.shards["beta"] = shardtesting.StartIn(t, s.shards["beta"].Directory, peer)
	resource := s.widgets(t, "beta", "alice", s.consumer)
	eventuallyCreate(t, resource, "without-root")
	eventuallyForbidden(t, resource, "bad", "denied by the provider")
	if err := resource.Delete(t.Context(), "without-root", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the maximal permission policy is no longer enforced: %v", err)
	}
	if err := checkListed(t.Context(), s.virtualWorkspace(t, "beta", "bob", widgets), "without-root"); err != nil {
		t.Errorf("bob cannot list: %v", err)
	}
}

func testExportDeletion(t *testing.T, s *env) {
	s.shards["root"] = shardtesting.StartIn(t, s.shards["root"].Directory)
	for _, name := range []string{"beta", "alpha"} {
		if name == "beta" {
			if err := s.shards[name].Stop(); err != nil {
				t.Fatal(err)
			}
		}
		s.shards[name] = shardtesting.StartShardIn(t, s.shards[name].Directory, s.shards["root"], name)
	}
	if err := s.masters(t, "alpha").Delete(shardtesting.In(t.Context(), s.provider), &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}); err != nil {
		t.Fatal(err)
	}
	c := s.masters(t, "beta")
	shardtesting.Eventually(t, "the binding reports the deletion", func(ctx context.Context) error {
		binding := &apisv1alpha2.APIBinding{}
		if err := c.Get(shardtesting.In(ctx, s.consumer), client.ObjectKey{Name: "widgets"}, binding); err != nil {
			return err
		}
		if !conditionsv1alpha1.IsFalse(binding, apisv1alpha2.APIExportValid) || binding.Status.Phase != apisv1alpha2.APIBindingPhaseBound {
			return fmt.Errorf("phase %q, conditions %+v", binding.Status.Phase, binding.Status.Conditions)
		}
		return nil
	})
	if _, err := s.widgets(t, "beta", "alice", s.consumer).Get(t.Context(), "first", metav1.GetOptions{}); err != nil {
		t.Errorf("it is no longer served: %v", err)
	}
}
