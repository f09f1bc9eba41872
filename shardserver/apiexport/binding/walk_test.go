package binding_test

import (
	"context"
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestPublishAndBind is flow 12.2 of the contract, as far as controllers make it.
func TestPublishAndBind(t *testing.T) {
	s := newSite(t)
	clusters := s.workspaces("provider", "consumer")
	provider, consumer := clusters[0], clusters[1]
	export := s.NewExport(t, provider, "widgets", widgets, "Widget")
	binding := s.Bind(t, consumer, provider, "widgets")
	if len(binding.Status.BoundResources) != 1 {
		t.Fatalf("bound are %+v", binding.Status.BoundResources)
	}
	bound := binding.Status.BoundResources[0]
	schema := &apisv1alpha1.APIResourceSchema{}
	if err := s.Get(in(provider), client.ObjectKey{Name: "v1.widgets.example.io"}, schema); err != nil {
		t.Fatal(err)
	}
	if bound.Schema.IdentityHash != export.Status.IdentityHash || bound.Schema.UID != string(schema.UID) || bound.Schema.Name != schema.Name ||
		len(bound.StorageVersions) != 1 || bound.StorageVersions[0] != "v1" || binding.Status.APIExportClusterName != provider {
		t.Errorf("status is %+v", binding.Status)
	}
	for _, condition := range []conditionsv1alpha1.Type{"Ready", apisv1alpha2.APIExportValid, apisv1alpha2.InitialBindingCompleted, apisv1alpha2.BindingUpToDate} {
		if !conditionsv1alpha1.IsTrue(binding, condition) {
			t.Errorf("%s is %+v", condition, conditionsv1alpha1.Get(binding, condition))
		}
	}
	slice := &apisv1alpha1.APIExportEndpointSlice{}
	shardtesting.Eventually(t, "the slice has the shard's address", func(ctx context.Context) error {
		if err := s.Get(shardtesting.In(ctx, provider), client.ObjectKey{Name: "widgets"}, slice); err != nil {
			return err
		}
		if len(slice.Status.APIExportEndpoints) != 1 {
			return fmt.Errorf("endpoints are %+v, conditions %+v", slice.Status.APIExportEndpoints, slice.Status.Conditions)
		}
		return nil
	})
}
