package topology

import (
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
)

func newShard(text string) *corev1alpha1.Shard {
	set, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		panic(err)
	}
	return &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Labels: set}}
}

func newPartitionSet(selector *metav1.LabelSelector, dimensions ...string) *topologyv1alpha1.PartitionSet {
	return &topologyv1alpha1.PartitionSet{
		ObjectMeta: metav1.ObjectMeta{Name: "set", UID: "uid"},
		Spec:       topologyv1alpha1.PartitionSetSpec{Dimensions: dimensions, ShardSelector: selector},
	}
}

func TestDesiredPartitions(t *testing.T) {
	selectorFor := func(text string) *metav1.LabelSelector { return metav1.SetAsLabelSelector(newShard(text).Labels) }
	expressions := []metav1.LabelSelectorRequirement{{Key: "cloud", Operator: metav1.LabelSelectorOpExists}}
	all := []*corev1alpha1.Shard{
		newShard("region=EU,zone=a,cloud=x"), newShard("region=EU,zone=b,cloud=x"), newShard("region=EU,zone=a,cloud=y"),
		newShard("region=us_east,zone=a"), newShard("region=ap"), newShard(""),
	}
	for name, tc := range map[string]struct {
		set *topologyv1alpha1.PartitionSet
		// want are the selected labels by the beginning of the name.
		want map[string]string
	}{
		"one per value":                        {newPartitionSet(nil, "region"), map[string]string{"set-eu-": "region=EU", "set-us-east-": "region=us_east", "set-ap-": "region=ap"}},
		"one per combination that a shard has": {newPartitionSet(nil, "zone", "region"), map[string]string{"set-eu-a-": "region=EU,zone=a", "set-eu-b-": "region=EU,zone=b", "set-us-east-a-": "region=us_east,zone=a"}},
		"duplicate dimension":                  {newPartitionSet(nil, "zone", "zone"), map[string]string{"set-a-": "zone=a", "set-b-": "zone=b"}},
		"selector labels are included":         {newPartitionSet(selectorFor("cloud=x"), "zone"), map[string]string{"set-x-a-": "cloud=x,zone=a", "set-x-b-": "cloud=x,zone=b"}},
		"selector labels without dimensions":   {newPartitionSet(selectorFor("cloud=y")), map[string]string{"set-y-": "cloud=y"}},
		"neither selector nor dimensions":      {newPartitionSet(nil), nil},
		"expressions without dimensions":       {newPartitionSet(&metav1.LabelSelector{MatchExpressions: expressions}), nil},
		"expressions select shards":            {newPartitionSet(&metav1.LabelSelector{MatchExpressions: expressions}, "region"), map[string]string{"set-eu-": "region=EU"}},
		"dimension that no shard has":          {newPartitionSet(nil, "planet"), nil},
		"selector that no shard matches":       {newPartitionSet(selectorFor("cloud=z"), "zone"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			partitions, err := desiredPartitions(tc.set, all)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, partition := range partitions {
				got[partition.GenerateName] = labels.Set(partition.Spec.Selector.MatchLabels).String()
				if owner := metav1.GetControllerOf(partition); owner == nil || owner.Name != "set" || owner.UID != "uid" {
					t.Errorf("%s belongs to %v", partition.GenerateName, owner)
				}
				if tc.set.Spec.ShardSelector != nil && len(partition.Spec.Selector.MatchExpressions) != len(tc.set.Spec.ShardSelector.MatchExpressions) {
					t.Errorf("%s has the expressions %v", partition.GenerateName, partition.Spec.Selector.MatchExpressions)
				}
			}
			if !maps.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
	t.Run("invalid selector is an error", func(t *testing.T) {
		invalid := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
		if _, err := desiredPartitions(newPartitionSet(invalid, "region"), all); err == nil {
			t.Error("no error")
		}
	})
}

func TestDiff(t *testing.T) {
	newTestPartition := func(text string) *topologyv1alpha1.Partition {
		return &topologyv1alpha1.Partition{Spec: topologyv1alpha1.PartitionSpec{Selector: metav1.SetAsLabelSelector(newShard(text).Labels)}}
	}
	owned := func(name, text string) *topologyv1alpha1.Partition {
		partition := newTestPartition(text)
		partition.Name = name
		return partition
	}
	desired := []*topologyv1alpha1.Partition{newTestPartition("zone=a"), newTestPartition("zone=b")}
	for name, tc := range map[string]struct {
		owned  []*topologyv1alpha1.Partition
		create int
		remove []string
	}{
		"missing partition is created":              {nil, 2, nil},
		"existing partitions stay":                  {[]*topologyv1alpha1.Partition{owned("x", "zone=b"), owned("y", "zone=a")}, 0, nil},
		"undesired partition is removed":            {[]*topologyv1alpha1.Partition{owned("x", "zone=b"), owned("y", "zone=c")}, 1, []string{"y"}},
		"duplicate with the higher name is removed": {[]*topologyv1alpha1.Partition{owned("y", "zone=b"), owned("x", "zone=b")}, 1, []string{"y"}},
		"changed partition is replaced":             {[]*topologyv1alpha1.Partition{owned("x", "zone=b"), owned("y", "zone=a,more=yes")}, 1, []string{"y"}},
	} {
		t.Run(name, func(t *testing.T) {
			result := diff(desired, tc.owned)
			var removed []string
			for _, partition := range result.remove {
				removed = append(removed, partition.Name)
			}
			if len(result.create) != tc.create || !slices.Equal(removed, tc.remove) {
				t.Errorf("creates %d, removes %v", len(result.create), removed)
			}
		})
	}
}
