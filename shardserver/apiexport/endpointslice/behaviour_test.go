package endpointslice_test

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

// TestSlices is one story, for its shard's labels belong to all of it.
func TestSlices(t *testing.T) {
	s := shardtesting.Start(t)
	c := s.Client(t, s.Admin(t))
	provider, consumer := s.NewWorkspace(t, "root", "provider").Spec.Cluster, s.NewWorkspace(t, "root", "consumer").Spec.Cluster
	in := shardtesting.In(context.Background(), provider)
	create := func(object client.Object) {
		t.Helper()
		if err := c.Create(in, object); err != nil {
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

	// A slice of its own, in a partition that is not there.
	create(newSlice("east", "widgets", "east"))
	wait("east", all(says(apisv1alpha1.APIExportValid, ""), says(apisv1alpha1.PartitionValid, apisv1alpha1.PartitionInvalidReferenceReason), lists("")))
	create(&topologyv1alpha1.Partition{
		ObjectMeta: metav1.ObjectMeta{Name: "east"},
		Spec:       topologyv1alpha1.PartitionSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "east"}}},
	})
	wait("east", all(says(apisv1alpha1.PartitionValid, ""), selects("region=east"), lists("")))
	s.Bind(t, consumer, provider, "widgets")
	address := "/services/apiexport/" + provider + "/widgets"
	wait("widgets", all(says(apisv1alpha1.APIExportValid, ""), says(apisv1alpha1.PartitionValid, ""), selects(""), lists(address)))
	wait("east", lists("")) // another shard's matter

	// Others list their addresses, too, and this shard leaves them alone.
	foreign := []byte(`{"apiVersion":"apis.kcp.io/v1alpha1","kind":"APIExportEndpointSlice","status":{"endpoints":[{"url":"https://other.example.io"}]}}`)
	masters := s.Client(t, s.Masters(t))
	if err := masters.Status().Patch(in, &slice{ObjectMeta: metav1.ObjectMeta{Name: "east"}}, client.RawPatch(types.ApplyPatchType, foreign), client.FieldOwner("other"), client.ForceOwnership); err != nil {
		t.Fatal(err)
	}
	label(t, s, `"east"`)
	wait("east", lists("https://other.example.io", address))
	label(t, s, `"west"`)
	wait("widgets", lists(address))
	wait("east", lists("https://other.example.io", address)) // out of the partition, it never touches the list
	label(t, s, `"east"`)

	// The last binding goes, then the export, then there is one again.
	deleteAndWait(t, c, consumer, "widgets")
	wait("widgets", lists(""))
	wait("east", lists("https://other.example.io"))
	if err := c.Delete(in, export); err != nil {
		t.Fatal(err)
	}
	wait("east", all(says(apisv1alpha1.APIExportValid, apisv1alpha1.APIExportNotFoundReason), lists("")))
}

func newSlice(name, export, partition string) *slice {
	return &slice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       apisv1alpha1.APIExportEndpointSliceSpec{APIExport: apisv1alpha1.ExportBindingReference{Name: export}, Partition: partition},
	}
}

// label sets the label "region" of the shard, or takes it away with null.
func label(t *testing.T, s *shardtesting.Shard, value string) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"region":%s}}}`, value))
	shard := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "root"}}
	if err := s.Client(t, s.Masters(t)).Patch(shardtesting.In(context.Background(), "root"), shard, patch); err != nil {
		t.Fatal(err)
	}
}

func deleteAndWait(t *testing.T, c client.Client, cluster, name string) {
	t.Helper()
	binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Delete(shardtesting.In(context.Background(), cluster), binding); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the binding goes", func(ctx context.Context) error {
		err := c.Get(shardtesting.In(ctx, cluster), client.ObjectKeyFromObject(binding), binding)
		if err == nil {
			return errors.New("it is there")
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

func says(condition conditionsv1alpha1.Type, reason string) func(*slice) error {
	return func(s *slice) error {
		found := conditionsv1alpha1.Get(s, condition)
		if found == nil || found.Reason != reason || (found.Status == "True") != (reason == "") {
			return fmt.Errorf("%s is %+v", condition, found)
		}
		return nil
	}
}

func selects(want string) func(*slice) error {
	return func(s *slice) error {
		if s.Status.ShardSelector != want {
			return fmt.Errorf("selector is %q", s.Status.ShardSelector)
		}
		return nil
	}
}

// lists is true of a slice with addresses that end in these, and no others; none for "".
func lists(ends ...string) func(*slice) error {
	return func(s *slice) error {
		if ends[0] == "" {
			ends = nil
		}
		if len(s.Status.APIExportEndpoints) != len(ends) {
			return errors.New("more or fewer addresses than wanted")
		}
		for _, end := range ends {
			found := false
			for _, endpoint := range s.Status.APIExportEndpoints {
				found = found || strings.HasSuffix(endpoint.URL, end)
			}
			if !found {
				return fmt.Errorf("no address ends in %s", end)
			}
		}
		return nil
	}
}

func all(conditions ...func(*slice) error) func(*slice) error {
	return func(s *slice) error {
		for _, condition := range conditions {
			if err := condition(s); err != nil {
				return err
			}
		}
		return nil
	}
}
