package apiexport_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

type slice = apisv1alpha1.APIExportEndpointSlice

// TestEndpointSlices runs its steps in order, because all slices depend on the labels of the shard.
func TestEndpointSlices(t *testing.T) {
	s := shardtesting.Start(t)
	c := s.Client(t, s.Admin(t))
	provider, consumer := s.NewWorkspace(t, "root", "provider").Spec.Cluster, s.NewWorkspace(t, "root", "consumer").Spec.Cluster
	ctxProvider := shardtesting.In(context.Background(), provider)
	create := func(object client.Object) {
		t.Helper()
		if err := c.Create(ctxProvider, object); err != nil {
			t.Fatal(err)
		}
	}
	wait := func(name string, condition func(*slice) error) {
		t.Helper()
		got := &slice{}
		shardtesting.Eventually(t, "slice "+name, func(ctx context.Context) error {
			if err := c.Get(shardtesting.In(ctx, provider), client.ObjectKey{Name: name}, got); err != nil {
				return err
			}
			if err := condition(got); err != nil {
				return fmt.Errorf("%w; status %+v", err, got.Status)
			}
			return nil
		})
	}
	export := s.NewExport(t, provider, "widgets", schema.GroupResource{Group: "example.io", Resource: "widgets"}, "Widget")

	// Another slice, in a partition that does not exist.
	create(newSlice("east", "widgets", "east"))
	wait("east", allOfSlice(sliceCondition(apisv1alpha1.APIExportValid, ""), sliceCondition(apisv1alpha1.PartitionValid, apisv1alpha1.PartitionInvalidReferenceReason), hasEndpoints("")))
	create(&topologyv1alpha1.Partition{
		ObjectMeta: metav1.ObjectMeta{Name: "east"},
		Spec:       topologyv1alpha1.PartitionSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "east"}}},
	})
	wait("east", allOfSlice(sliceCondition(apisv1alpha1.PartitionValid, ""), hasSelector("region=east"), hasEndpoints("")))
	s.Bind(t, consumer, provider, "widgets")
	address := "/services/apiexport/" + provider + "/widgets"
	wait("widgets", allOfSlice(sliceCondition(apisv1alpha1.APIExportValid, ""), sliceCondition(apisv1alpha1.PartitionValid, ""), hasSelector(""), hasEndpoints(address)))
	wait("east", hasEndpoints("")) // the partition selects another shard

	// Endpoints of other shards in the list are kept.
	otherShardPatch := []byte(`{"apiVersion":"apis.kcp.io/v1alpha1","kind":"APIExportEndpointSlice","status":{"endpoints":[{"url":"https://other.example.io"}]}}`)
	masters := s.Client(t, s.Masters(t))
	if err := masters.Status().Patch(ctxProvider, &slice{ObjectMeta: metav1.ObjectMeta{Name: "east"}}, client.RawPatch(types.ApplyPatchType, otherShardPatch), client.FieldOwner("other"), client.ForceOwnership); err != nil {
		t.Fatal(err)
	}
	setRegion(t, s, `"east"`)
	wait("east", hasEndpoints("https://other.example.io", address))
	setRegion(t, s, `"west"`)
	wait("widgets", hasEndpoints(address))
	wait("east", hasEndpoints("https://other.example.io", address)) // outside of the partition, the shard does not change the list
	setRegion(t, s, `"east"`)

	// The last binding is deleted, then the export, then both are created again.
	deleteBinding(t, c, consumer, "widgets")
	wait("widgets", hasEndpoints(""))
	wait("east", hasEndpoints("https://other.example.io"))
	if err := c.Delete(ctxProvider, export); err != nil {
		t.Fatal(err)
	}
	wait("east", allOfSlice(sliceCondition(apisv1alpha1.APIExportValid, apisv1alpha1.APIExportNotFoundReason), hasEndpoints("")))
}

func newSlice(name, export, partition string) *slice {
	return &slice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       apisv1alpha1.APIExportEndpointSliceSpec{APIExport: apisv1alpha1.ExportBindingReference{Name: export}, Partition: partition},
	}
}

// setRegion sets the label "region" of the Shard that the shard owns, or removes it if null.
func setRegion(t *testing.T, s *shardtesting.Shard, value string) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"region":%s}}}`, value))
	shard := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "root"}}
	if err := s.Client(t, s.Masters(t)).Patch(shardtesting.In(context.Background(), "system:shard"), shard, patch); err != nil {
		t.Fatal(err)
	}
}

func deleteBinding(t *testing.T, c client.Client, cluster, name string) {
	t.Helper()
	binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Delete(shardtesting.In(context.Background(), cluster), binding); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the binding is deleted", func(ctx context.Context) error {
		err := c.Get(shardtesting.In(ctx, cluster), client.ObjectKeyFromObject(binding), binding)
		if err == nil {
			return errors.New("it exists")
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

func sliceCondition(condition conditionsv1alpha1.Type, reason string) func(*slice) error {
	return func(s *slice) error {
		found := conditionsv1alpha1.Get(s, condition)
		if found == nil || found.Reason != reason || (found.Status == "True") != (reason == "") {
			return fmt.Errorf("%s is %+v", condition, found)
		}
		return nil
	}
}

func hasSelector(want string) func(*slice) error {
	return func(s *slice) error {
		if s.Status.ShardSelector != want {
			return fmt.Errorf("selector is %q", s.Status.ShardSelector)
		}
		return nil
	}
}

// hasEndpoints is satisfied by a slice with exactly the endpoints that end in these suffixes; "" means none.
func hasEndpoints(suffixes ...string) func(*slice) error {
	if suffixes[0] == "" {
		suffixes = nil
	}
	return func(s *slice) error {
		if len(s.Status.APIExportEndpoints) != len(suffixes) {
			return errors.New("unexpected number of endpoints")
		}
		for _, suffix := range suffixes {
			found := false
			for _, endpoint := range s.Status.APIExportEndpoints {
				found = found || strings.HasSuffix(endpoint.URL, suffix)
			}
			if !found {
				return fmt.Errorf("no endpoint ends in %s", suffix)
			}
		}
		return nil
	}
}

func allOfSlice(conditions ...func(*slice) error) func(*slice) error {
	return func(s *slice) error {
		for _, condition := range conditions {
			if err := condition(s); err != nil {
				return err
			}
		}
		return nil
	}
}
