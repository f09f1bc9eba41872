package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func bindingTo(path, name string) *apisv1alpha2.APIBinding {
	return &apisv1alpha2.APIBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{
			Export: &apisv1alpha2.ExportBindingReference{Path: path, Name: name},
		}},
	}
}

func waitBound(t *testing.T, c client.Client, cluster, name string) {
	t.Helper()
	shardtesting.Eventually(t, "binding "+name+" is bound", func(ctx context.Context) error {
		binding := &apisv1alpha2.APIBinding{}
		if err := c.Get(shardtesting.In(ctx, cluster), client.ObjectKey{Name: name}, binding); err != nil {
			return err
		}
		if binding.Status.Phase != apisv1alpha2.APIBindingPhaseBound {
			return fmt.Errorf("phase %q, conditions %+v", binding.Status.Phase, binding.Status.Conditions)
		}
		return nil
	})
}

func testBindByPath(t *testing.T, s *env) {
	alice := s.userClient(t, "beta", "alice")
	binding := bindingTo("root:provider", "widgets")
	if err := alice.Create(shardtesting.In(t.Context(), s.consumer), binding.DeepCopy()); !apierrors.IsForbidden(err) {
		t.Fatalf("without permission in the export's workspace: %v", err)
	}
	s.grantRule(t, "alpha", s.provider, "binders", "alice", rbacv1.PolicyRule{
		Verbs: []string{"bind"}, APIGroups: []string{"apis.kcp.io"}, Resources: []string{"apiexports"}, ResourceNames: []string{"widgets"},
	})
	shardtesting.Eventually(t, "the permission is replicated", func(ctx context.Context) error {
		return alice.Create(shardtesting.In(ctx, s.consumer), binding.DeepCopy())
	})
	waitBound(t, alice, s.consumer, "widgets")
	eventuallyCreate(t, s.widgets(t, "beta", "alice", s.consumer), "first")
}

func testEndpointSliceShards(t *testing.T, s *env) {
	s.waitSlice(t, "widgets", "beta")
	shardtesting.Bind(t, s.masters(t, "alpha"), s.provider, s.provider, "widgets")
	s.waitSlice(t, "widgets", "alpha", "beta")
	if err := s.masters(t, "alpha").Delete(shardtesting.In(t.Context(), s.provider), bindingTo("", "widgets")); err != nil {
		t.Fatal(err)
	}
	s.waitSlice(t, "widgets", "beta")
}

// waitSlice waits until a slice of the provider has exactly the endpoints of these shards.
func (e *env) waitSlice(t *testing.T, name string, shards ...string) {
	t.Helper()
	var want []string
	for _, name := range shards {
		shard := &corev1alpha1.Shard{}
		if err := e.masters(t, "root").Get(shardtesting.In(t.Context(), "root"), client.ObjectKey{Name: name}, shard); err != nil {
			t.Fatal(err)
		}
		want = append(want, strings.TrimSuffix(shard.Spec.VirtualWorkspaceURL, "/")+"/services/apiexport/"+e.provider+"/widgets")
	}
	slices.Sort(want)
	c := e.masters(t, "alpha")
	shardtesting.Eventually(t, "slice "+name, func(ctx context.Context) error {
		slice := &apisv1alpha1.APIExportEndpointSlice{}
		if err := c.Get(shardtesting.In(ctx, e.provider), client.ObjectKey{Name: name}, slice); err != nil {
			return err
		}
		var got []string
		for _, endpoint := range slice.Status.APIExportEndpoints {
			got = append(got, endpoint.URL)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("got %v, want %v; conditions %+v", got, want, slice.Status.Conditions)
		}
		return nil
	})
}

func testPartitions(t *testing.T, s *env) {
	c := s.masters(t, "alpha")
	create(t, c, s.provider, &topologyv1alpha1.PartitionSet{
		ObjectMeta: metav1.ObjectMeta{Name: "each"}, Spec: topologyv1alpha1.PartitionSetSpec{Dimensions: []string{"name"}},
	})
	var beta string
	shardtesting.Eventually(t, "one partition for each shard", func(ctx context.Context) error {
		found := &topologyv1alpha1.PartitionList{}
		if err := c.List(shardtesting.In(ctx, s.provider), found); err != nil {
			return err
		}
		for _, partition := range found.Items {
			if partition.Spec.Selector.MatchLabels["name"] == "beta" {
				beta = partition.Name
			}
		}
		if len(found.Items) != 3 {
			return fmt.Errorf("partitions %+v", found.Items)
		}
		return nil
	})
	for name, partition := range map[string]string{"for-beta": beta, "for-none": ""} {
		slice := &apisv1alpha1.APIExportEndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       apisv1alpha1.APIExportEndpointSliceSpec{APIExport: apisv1alpha1.ExportBindingReference{Name: "widgets"}, Partition: partition},
		}
		if name == "for-none" {
			create(t, c, s.provider, &topologyv1alpha1.Partition{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       topologyv1alpha1.PartitionSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "root"}}},
			})
			slice.Spec.Partition = name
		}
		create(t, c, s.provider, slice)
	}
	s.waitSlice(t, "for-beta", "beta")
	s.waitSlice(t, "for-none")
}

func testBindPermissionRevoked(t *testing.T, s *env) {
	c := s.masters(t, "alpha")
	if err := c.Delete(shardtesting.In(t.Context(), s.provider), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "binders"}}); err != nil {
		t.Fatal(err)
	}
	alice := s.userClient(t, "beta", "alice")
	shardtesting.Eventually(t, "alice may no longer bind", func(ctx context.Context) error {
		err := alice.Create(shardtesting.In(ctx, s.otherConsumer), bindingTo("root:provider", "widgets"), client.DryRunAll)
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("got %w", errors.Join(errors.New("not refused"), err))
		}
		return nil
	})
}
