package drain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// Resources in the status and in the limits of Shards.
const (
	logicalClustersResource corev1.ResourceName = "logicalclusters"
	workspacesResource      corev1.ResourceName = "workspaces"
)

// candidate is a shard that can have one more logical cluster.
type candidate struct {
	name string
	// load is the number of logical clusters, with those that are on the way; capacity is 0 if unlimited.
	load, capacity int64
	// second reports whether any other shard is preferred: the soft limit is reached, or a move to it has just failed.
	second bool
}

// chooseDestination returns the shard to which a logical cluster of origin moves, by the rules for new workspaces, or the reasons why
// there is none. onTheWay has the number of logical clusters that are moving to each shard. The shard called avoid is chosen only
// if no other can be.
func chooseDestination(origin *corev1alpha1.Shard, shards []corev1alpha1.Shard, selector labels.Selector, onTheWay map[string]int64, avoid string) (string, string) {
	var candidates []candidate
	var reasons []string
	for i := range shards {
		shard := &shards[i]
		if shard.Name == origin.Name || !selector.Matches(labels.Set(shard.Labels)) {
			continue
		}
		c, reason := newCandidate(shard, onTheWay[shard.Name])
		if mismatch := placeMismatch(origin, shard); mismatch != "" {
			reason = mismatch
		}
		if reason != "" {
			reasons = append(reasons, fmt.Sprintf("shard %q %s", shard.Name, reason))
			continue
		}
		c.second = c.second || shard.Name == avoid
		candidates = append(candidates, c)
	}
	switch {
	case len(candidates) > 0:
		return slices.MinFunc(candidates, candidate.compare).name, ""
	case len(reasons) > 0:
		slices.Sort(reasons)
		return "", "no shard can have it: " + strings.Join(reasons, "; ")
	case selector.Empty():
		return "", "there is no other shard"
	}
	return "", fmt.Sprintf("no other shard has the labels that its spec.location.selector demands (%s)", selector)
}

// placeMismatch returns why logical clusters of origin cannot be on a shard whatever their selectors are: their data stays in its
// region, and their URLs do not change.
func placeMismatch(origin, shard *corev1alpha1.Shard) string {
	if there, here := shard.Labels[corev1alpha1.RegionLabelKey], origin.Labels[corev1alpha1.RegionLabelKey]; there != here {
		return fmt.Sprintf("is in the region %q, not in %q", there, here)
	}
	if there, here := externalURL(shard), externalURL(origin); there != here {
		return fmt.Sprintf("has the external URL %q, so that the URL of the workspace would change", there)
	}
	return ""
}

func externalURL(shard *corev1alpha1.Shard) string {
	return strings.TrimSuffix(cmp.Or(shard.Spec.ExternalURL, shard.Spec.BaseURL), "/")
}

// newCandidate returns a shard with its load, or the reason why it accepts no more logical clusters.
func newCandidate(shard *corev1alpha1.Shard, onTheWay int64) (candidate, string) {
	if reason := closedReason(shard); reason != "" {
		return candidate{}, reason
	}
	c := candidate{
		name: shard.Name, load: valueOf(shard.Status.Load, logicalClustersResource) + onTheWay,
		capacity: valueOf(shard.Status.Capacity, logicalClustersResource),
	}
	used := valueOf(shard.Status.Used, workspacesResource) + onTheWay
	if limits := shard.Spec.ResourceLimits; limits != nil {
		soft, hard := valueOf(limits.Soft, workspacesResource), valueOf(limits.Hard, workspacesResource)
		if c.second = soft > 0 && used >= soft; hard > 0 {
			if used >= hard {
				return c, fmt.Sprintf("is full: it has %d of %d workspaces", used, hard)
			}
			c.capacity = hard - (used - c.load) // system logical clusters take a part of it
		}
	}
	if c.capacity > 0 && c.load >= c.capacity {
		return c, fmt.Sprintf("is full: it has %d of %d logical clusters", c.load, c.capacity)
	}
	return c, ""
}

// closedReason returns why a shard accepts no new logical clusters at all, or "".
func closedReason(shard *corev1alpha1.Shard) string {
	if _, closed := shard.Annotations[corev1alpha1.UnschedulableAnnotationKey]; closed {
		return "is closed by its annotation " + corev1alpha1.UnschedulableAnnotationKey
	}
	ready := conditionsv1alpha1.Get(shard, conditionsv1alpha1.Ready)
	switch {
	case shard.DeletionTimestamp != nil:
		return "is being deleted"
	case ready == nil || ready.Status == corev1.ConditionUnknown:
		return "has not reported lately"
	case ready.Status == corev1.ConditionFalse:
		return "is not healthy: " + cmp.Or(ready.Message, ready.Reason)
	case conditionsv1alpha1.IsFalse(shard, corev1alpha1.ShardSchedulable):
		return "accepts no new workspaces: " + cmp.Or(conditionsv1alpha1.GetMessage(shard, corev1alpha1.ShardSchedulable), conditionsv1alpha1.GetReason(shard, corev1alpha1.ShardSchedulable))
	}
	return ""
}

// compare orders candidates, the best first: by the used share of the capacity if both have one, else by the load.
func (c candidate) compare(than candidate) int {
	if c.second != than.second {
		if c.second {
			return 1
		}
		return -1
	}
	byLoad := cmp.Compare(c.load, than.load)
	if c.capacity > 0 && than.capacity > 0 {
		byLoad = cmp.Compare(float64(c.load)/float64(c.capacity), float64(than.load)/float64(than.capacity))
	}
	return cmp.Or(byLoad, cmp.Compare(c.name, than.name))
}

func valueOf(list corev1.ResourceList, name corev1.ResourceName) int64 {
	quantity := list[name]
	return max(quantity.Value(), 0)
}
