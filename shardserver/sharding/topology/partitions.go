package topology

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
)

// desiredPartitions returns the desired partitions of a set, ordered by name: one for each combination of label values
// of the shards that match the set's selector and have all labels that the set divides by. It returns an error for an
// invalid selector.
func desiredPartitions(set *topologyv1alpha1.PartitionSet, shards []*corev1alpha1.Shard) ([]*topologyv1alpha1.Partition, error) {
	selector := labels.Everything()
	var fixed map[string]string
	var expressions []metav1.LabelSelectorRequirement
	if given := set.Spec.ShardSelector; given != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(given); err != nil {
			return nil, err
		}
		fixed, expressions = given.MatchLabels, given.MatchExpressions
	}
	keys := slices.Sorted(maps.Keys(fixed))
	keys = append(keys, set.Spec.Dimensions...)
	slices.Sort(keys)
	keys = slices.Compact(keys)
	if len(keys) == 0 {
		return nil, nil
	}
	found := map[string]*topologyv1alpha1.Partition{}
	for _, shard := range shards {
		if !selector.Matches(labels.Set(shard.Labels)) {
			continue
		}
		combination, ok := labelValues(shard, keys)
		if !ok {
			continue
		}
		partition := newPartition(set, keys, combination)
		partition.Spec.Selector.MatchExpressions = expressions
		found[labels.Set(combination).String()] = partition
	}
	var partitions []*topologyv1alpha1.Partition
	for _, combination := range slices.Sorted(maps.Keys(found)) {
		partitions = append(partitions, found[combination])
	}
	return partitions, nil
}

// labelValues returns the values of all the labels of a shard, or false if it lacks one.
func labelValues(shard *corev1alpha1.Shard, keys []string) (map[string]string, bool) {
	values := make(map[string]string, len(keys))
	for _, key := range keys {
		value, ok := shard.Labels[key]
		if !ok {
			return nil, false
		}
		values[key] = value
	}
	return values, true
}

func newPartition(set *topologyv1alpha1.PartitionSet, keys []string, combination map[string]string) *topologyv1alpha1.Partition {
	return &topologyv1alpha1.Partition{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    generateName(set.Name, keys, combination),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, topologyv1alpha1.SchemeGroupVersion.WithKind("PartitionSet"))},
		},
		Spec: topologyv1alpha1.PartitionSpec{Selector: &metav1.LabelSelector{MatchLabels: combination}},
	}
}

// generateName returns "<set>-<values>-", the values in lower case and in the order of their keys. Characters that a
// name cannot have become dashes.
func generateName(set string, keys []string, combination map[string]string) string {
	parts := []string{set}
	for _, key := range keys {
		if value := combination[key]; value != "" {
			parts = append(parts, strings.ToLower(value))
		}
	}
	name := strings.Join(parts, "-")
	if len(validation.NameIsDNSSubdomain(name, false)) > 0 {
		name = strings.Map(func(r rune) rune {
			if (r >= 'a' && r <= 'z') || (r >= '0' && r <= '9') {
				return r
			}
			return '-'
		}, name)
	}
	return name + "-"
}

// changes are the partitions to create and to remove.
type changes struct {
	create, remove []*topologyv1alpha1.Partition
}

func (c changes) isEmpty() bool { return len(c.create) == 0 && len(c.remove) == 0 }

// diff compares partitions by their selectors, as their names are generated. Of two with the same selector, it keeps
// the one with the lower name.
func diff(desired, owned []*topologyv1alpha1.Partition) changes {
	owned = slices.SortedFunc(slices.Values(owned), func(a, b *topologyv1alpha1.Partition) int { return strings.Compare(a.Name, b.Name) })
	var result changes
	kept := make([]bool, len(desired))
	for _, partition := range owned {
		at := slices.IndexFunc(desired, func(candidate *topologyv1alpha1.Partition) bool {
			return equality.Semantic.DeepEqual(candidate.Spec, partition.Spec)
		})
		if at < 0 || kept[at] {
			result.remove = append(result.remove, partition)
			continue
		}
		kept[at] = true
	}
	for i, partition := range desired {
		if !kept[i] {
			result.create = append(result.create, partition)
		}
	}
	return result
}
