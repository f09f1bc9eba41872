package apiexport_test

import (
	"context"
	"testing"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testMissingDefinition adds a bound resource without definition and schema to the status of a binding.
func testMissingDefinition(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	widgets, gadgets := s.newResource("widgets"), s.newResource("gadgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	s.NewExport(t, provider, "gadgets", gadgets, "Gadget")
	s.Bind(t, consumer, provider, "widgets")
	stale := apisv1alpha2.BoundAPIResource{
		Group: "gone.example.io", Resource: "things", StorageVersions: []string{"v1"},
		Schema: apisv1alpha2.BoundAPIResourceSchema{Name: "v1.things.gone.example.io", UID: "00000000-0000-0000-0000-000000000000", IdentityHash: "0123"},
	}
	masters := s.Shard.Client(t, s.Masters(t))
	binding := &apisv1alpha2.APIBinding{}
	shardtesting.Eventually(t, "the status has the stale resource", func(ctx context.Context) error {
		binding = s.waitForBinding(consumer, "widgets", isBound)
		binding.Status.BoundResources = append(binding.Status.BoundResources, stale)
		return masters.Status().Update(shardtesting.In(ctx, consumer), binding)
	})
	s.createBinding(consumer, "gadgets", provider, "gadgets")
	s.waitForBinding(consumer, "gadgets", allOf(isBound, bindsResources("gadgets"), hasCondition(apisv1alpha2.BindingUpToDate, "")))
	s.waitForBinding(consumer, "widgets", allOf(isBound, bindsResources("widgets", "things")))
	s.createObject(consumer, gadgets, "Gadget", "one")
	s.createObject(consumer, widgets, "Widget", "one")
	if err := s.Delete(clusterContext(consumer), binding); err != nil {
		t.Fatal(err)
	}
	s.expectDeleted(consumer, binding)
}
