package sharding_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func TestPartitionSets(t *testing.T) {
	s := shardtesting.Start(t)
	c := s.Client(t, s.Masters(t))
	root := shardtesting.In(t.Context(), "root")
	for name, region := range map[string]string{"one": "EU", "two": "EU", "three": "us"} {
		shard := &corev1alpha1.Shard{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name, "region": region}},
			Spec:       corev1alpha1.ShardSpec{BaseURL: "https://" + name + ".example"},
		}
		must(t, c.Create(root, shard))
	}
	workspace := shardtesting.In(t.Context(), s.NewWorkspace(t, "root", "divided").Spec.Cluster)
	set := &topologyv1alpha1.PartitionSet{ObjectMeta: metav1.ObjectMeta{Name: "regions"}, Spec: topologyv1alpha1.PartitionSetSpec{Dimensions: []string{"region"}}}
	must(t, c.Create(workspace, set))
	partitions := func(t *testing.T, want ...string) []topologyv1alpha1.Partition {
		t.Helper()
		var list topologyv1alpha1.PartitionList
		shardtesting.Eventually(t, "the partitions "+strings.Join(want, " "), func(ctx context.Context) error {
			list = topologyv1alpha1.PartitionList{}
			if err := c.List(workspace, &list); err != nil {
				return err
			}
			var got []string
			for _, partition := range list.Items {
				got = append(got, partition.GenerateName)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				return fmt.Errorf("there are %v", got)
			}
			return nil
		})
		return list.Items
	}

	t.Run("set has a partition for each region", func(t *testing.T) {
		for _, partition := range partitions(t, "regions-eu-", "regions-us-") {
			if owner := metav1.GetControllerOf(&partition); owner == nil || owner.UID != set.UID {
				t.Errorf("%s belongs to %v", partition.Name, owner)
			}
		}
		shardtesting.Eventually(t, "its status", func(context.Context) error {
			if err := c.Get(workspace, client.ObjectKeyFromObject(set), set); err != nil {
				return err
			}
			if set.Status.Count != 2 || !conditionsv1alpha1.IsTrue(set, topologyv1alpha1.PartitionSetValid) || !conditionsv1alpha1.IsTrue(set, topologyv1alpha1.PartitionsReady) {
				return fmt.Errorf("it is %+v", set.Status)
			}
			return nil
		})
	})

	t.Run("partitions follow the shards", func(t *testing.T) {
		shard := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "three"}}
		must(t, c.Patch(root, shard, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"region":"ap"}}}`))))
		partitions(t, "regions-ap-", "regions-eu-")
	})

	t.Run("deleted and changed partitions are recreated", func(t *testing.T) {
		found := partitions(t, "regions-ap-", "regions-eu-")
		must(t, c.Delete(workspace, &found[0]))
		found[1].Spec.Selector.MatchLabels["more"] = "yes"
		must(t, c.Update(workspace, &found[1]))
		shardtesting.Eventually(t, "both partitions to be recreated", func(context.Context) error {
			for _, partition := range partitions(t, "regions-ap-", "regions-eu-") {
				if partition.UID == found[0].UID || partition.UID == found[1].UID {
					return fmt.Errorf("%s was not recreated", partition.Name)
				}
			}
			return nil
		})
	})

	t.Run("partitions of others stay", func(t *testing.T) {
		must(t, c.Create(workspace, &topologyv1alpha1.Partition{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}))
		shardtesting.Eventually(t, "the set without dimensions", func(context.Context) error {
			if err := c.Get(workspace, client.ObjectKeyFromObject(set), set); err != nil {
				return err
			}
			set.Spec.Dimensions = nil
			return c.Update(workspace, set)
		})
		partitions(t, "")
	})

	t.Run("selectors are validated", func(t *testing.T) {
		for name, selector := range map[string]metav1.LabelSelector{
			"unknown operator":  {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}},
			"no values":         {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn}}},
			"unexpected values": {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpExists, Values: []string{"b"}}}},
			"invalid key":       {MatchLabels: map[string]string{"a/b/c": "d"}},
			"invalid value":     {MatchLabels: map[string]string{"a": "-"}},
		} {
			invalid := &topologyv1alpha1.PartitionSet{ObjectMeta: metav1.ObjectMeta{Name: "invalid"}, Spec: topologyv1alpha1.PartitionSetSpec{ShardSelector: &selector}}
			if err := c.Create(workspace, invalid); !apierrors.IsInvalid(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})

	t.Run("printed columns match kcp", func(t *testing.T) {
		for resource, want := range map[string]string{"partitions": "Name Owner Age", "partitionsets": "Name Count Age"} {
			if got := columns(t, s.Masters(t), set.Annotations["kcp.io/cluster"], resource); got != want {
				t.Errorf("%s have %q", resource, got)
			}
		}
	})
}

func columns(t *testing.T, config *rest.Config, cluster, resource string) string {
	t.Helper()
	_, body := shardtesting.Send(t, config, http.MethodGet, "/clusters/"+cluster+"/apis/topology.kcp.io/v1alpha1/"+resource, "",
		"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	var table metav1.Table
	must(t, json.Unmarshal([]byte(body), &table))
	var names []string
	for _, column := range table.ColumnDefinitions {
		names = append(names, column.Name)
	}
	return strings.Join(names, " ")
}
