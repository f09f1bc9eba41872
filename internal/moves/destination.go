package moves

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/placementrules"
)

// storagePercent is the percentage of the storage of a shard from which nothing that can go elsewhere moves there. It is below the one at which
// copies stop, because the shard rounds what it reports, and because a copy that has begun shall end.
const storagePercent = 70

// Destinations chooses shards for the logical clusters of Origin, by the rules for new workspaces.
type Destinations struct {
	Origin *corev1alpha1.Shard
	Shards []corev1alpha1.Shard
	// OnTheWay has the number of logical clusters that are moving to each shard.
	OnTheWay map[string]int64
	// Stuck has for shards to which a migration makes no progress the name of that. Nothing else is moved there.
	Stuck map[string]string
}

// Choose returns the shard to which a logical cluster moves, or the reasons why there is none. The shard called avoid is chosen only if no
// other can be.
func (d Destinations) Choose(selector labels.Selector, avoid string) (string, string) {
	var candidates []placementrules.Candidate
	var reasons []string
	for i := range d.Shards {
		shard := &d.Shards[i]
		if shard.Name == d.Origin.Name || !selector.Matches(labels.Set(shard.Labels)) {
			continue
		}
		candidate, reason := d.rate(shard, d.OnTheWay[shard.Name])
		if reason != "" {
			reasons = append(reasons, fmt.Sprintf("shard %q %s", shard.Name, reason))
			continue
		}
		candidate.Second = candidate.Second || shard.Name == avoid
		candidates = append(candidates, candidate)
	}
	switch {
	case len(candidates) > 0:
		return slices.MinFunc(candidates, func(a, b placementrules.Candidate) int { return cmp.Or(a.Compare(b), cmp.Compare(a.Name, b.Name)) }).Name, ""
	case len(reasons) > 0:
		slices.Sort(reasons)
		return "", "no shard can have it: " + strings.Join(reasons, "; ")
	case selector.Empty():
		return "", "there is no other shard: add one"
	}
	return "", fmt.Sprintf("no other shard has the labels that its spec.location.selector demands (%s)", selector)
}

// Accepts reports whether a shard, to which one of the logical clusters on the way moves, can have it.
func (d Destinations) Accepts(name string, selector labels.Selector) bool {
	for i := range d.Shards {
		if shard := &d.Shards[i]; shard.Name == name && selector.Matches(labels.Set(shard.Labels)) {
			_, reason := d.rate(shard, d.OnTheWay[name]-1)
			return reason == ""
		}
	}
	return false
}

// rate returns a shard as a candidate, or why it cannot have logical clusters of the origin, whatever their selectors are: their data
// stays in its region, and their URLs do not change.
func (d Destinations) rate(shard *corev1alpha1.Shard, pending int64) (placementrules.Candidate, string) {
	if there, here := placementrules.ExternalURL(shard), placementrules.ExternalURL(d.Origin); there != here {
		return placementrules.Candidate{}, fmt.Sprintf("has the external URL %q, so that the URL of the workspace would change", there)
	}
	if there, here := shard.Labels[corev1alpha1.RegionLabelKey], d.Origin.Labels[corev1alpha1.RegionLabelKey]; there != here {
		return placementrules.Candidate{}, fmt.Sprintf("is in the region %q, not in %q", there, here)
	}
	candidate, refusal := placementrules.FromStatus(shard, pending).Candidate()
	if refusal != nil {
		return candidate, refusal.Message
	}
	if shortage := storageShortage(shard); shortage != "" {
		return candidate, shortage
	}
	if migration := d.Stuck[shard.Name]; migration != "" {
		return candidate, fmt.Sprintf("makes no progress with migration %s in root", migration)
	}
	return candidate, ""
}

// storageShortage returns why a shard has no space for copies, or "". A shard whose etcd does not report its quota has no capacity.
func storageShortage(shard *corev1alpha1.Shard) string {
	inUse, quota := placementrules.Value(shard.Status.Load, corev1.ResourceStorage), placementrules.Value(shard.Status.Capacity, corev1.ResourceStorage)
	if quota == 0 || inUse < quota/100*storagePercent {
		return ""
	}
	return fmt.Sprintf("has no space for copies: its etcd uses %s of %s, and nothing moves there from %d percent on",
		resource.NewQuantity(inUse, resource.BinarySI), resource.NewQuantity(quota, resource.BinarySI), storagePercent)
}
