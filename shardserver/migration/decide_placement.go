package migration

import (
	"cmp"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/sharding/heartbeat"
)

// Placement is what the shard of a Workspace knows about a migration of its logical cluster. This shard decides, because it
// alone has the Workspace; it decides about the shard of a new workspace, too.
type Placement struct {
	Workspace *tenancyv1alpha1.Workspace
	// Destination is the name of the destination shard. Shards are those of the installation.
	Origin, Destination string
	Shards              []*corev1alpha1.Shard
}

// Verdict returns whether the logical cluster may be placed on the destination shard, and else the first rule that does not
// hold. Whether the destination has the feature enabled is not known here: it does not begin then.
func (p Placement) Verdict() *shardingv1alpha1.MigrationPlacement {
	for _, rule := range []func() *refusal{p.exists, p.keepsURL, p.matchesSelector, p.hasRoom, p.isSchedulable} {
		if refused := rule(); refused != nil {
			return &shardingv1alpha1.MigrationPlacement{Reason: refused.reason, Message: refused.message}
		}
	}
	return &shardingv1alpha1.MigrationPlacement{Allowed: true}
}

func (p Placement) shard(name string) *corev1alpha1.Shard {
	for _, shard := range p.Shards {
		if shard.Name == name {
			return shard
		}
	}
	return nil
}

func (p Placement) exists() *refusal {
	if p.shard(p.Destination) != nil {
		return nil
	}
	return &refusal{migrationv1alpha1.ReasonUnknownShard, fmt.Sprintf(
		"there is no shard %q in the installation: add it, or delete the migration and create one to another shard", p.Destination)}
}

// keepsURL refuses another external URL: clients keep the URL of their workspace in kubeconfigs.
func (p Placement) keepsURL() *refusal {
	origin := p.shard(p.Origin)
	if origin == nil {
		return nil // it is being removed: nothing is known about its URL
	}
	from, to := externalURL(origin), externalURL(p.shard(p.Destination))
	if from == to {
		return nil
	}
	return &refusal{migrationv1alpha1.ReasonDifferentURL, fmt.Sprintf(
		"the URLs of the workspace would change, because shard %q has the external URL %s, and shard %q has %s: choose a shard with the same one, or start both shards with the same --shard-external-url",
		p.Origin, from, p.Destination, to)}
}

func externalURL(shard *corev1alpha1.Shard) string {
	return strings.TrimSuffix(cmp.Or(shard.Spec.ExternalURL, shard.Spec.BaseURL), "/")
}

// shardNameLabel is the label of every Shard with its name.
const shardNameLabel = "name"

// matchesSelector refuses a shard that the Workspace does not select. What is required of the name of the shard is not
// considered: it says where the workspace was created, and the migration names another shard, as clients of kcp expect.
func (p Placement) matchesSelector() *refusal {
	if p.Workspace.Spec.Location == nil || p.Workspace.Spec.Location.Selector == nil {
		return nil
	}
	parsed, err := metav1.LabelSelectorAsSelector(p.Workspace.Spec.Location.Selector)
	if err != nil {
		return &refusal{migrationv1alpha1.ReasonSelectorMismatch, fmt.Sprintf("spec.location.selector of the workspace is invalid: %v", err)}
	}
	selector := labels.NewSelector()
	requirements, selectable := parsed.Requirements()
	for _, requirement := range requirements {
		if requirement.Key() != shardNameLabel {
			selector = selector.Add(requirement)
		}
	}
	if selectable && selector.Matches(labels.Set(p.shard(p.Destination).Labels)) {
		return nil
	}
	return &refusal{migrationv1alpha1.ReasonSelectorMismatch, fmt.Sprintf(
		"spec.location.selector of the workspace (%s) does not match the labels of shard %q: choose a shard that it matches, or change the selector", selector, p.Destination)}
}

func (p Placement) hasRoom() *refusal {
	shard := p.shard(p.Destination)
	_, hard := heartbeat.WorkspaceLimits(shard.Spec.ResourceLimits)
	quantity := shard.Status.Used[heartbeat.Workspaces]
	used := quantity.Value()
	if hard == 0 || used < hard {
		return nil
	}
	return &refusal{migrationv1alpha1.ReasonShardFull, fmt.Sprintf(
		"shard %q has %d of %d workspaces: raise spec.resourceLimits.hard of the Shard in the admin workspace, or choose another shard", p.Destination, used, hard)}
}

func (p Placement) isSchedulable() *refusal {
	shard := p.shard(p.Destination)
	if _, cordoned := shard.Annotations[corev1alpha1.UnschedulableAnnotationKey]; cordoned {
		return &refusal{migrationv1alpha1.ReasonShardNotSchedulable, fmt.Sprintf(
			"shard %q is closed: remove its annotation %s in the admin workspace, or choose another shard", p.Destination, corev1alpha1.UnschedulableAnnotationKey)}
	}
	if !conditionsv1alpha1.IsFalse(shard, corev1alpha1.ShardSchedulable) {
		return nil
	}
	return &refusal{migrationv1alpha1.ReasonShardNotSchedulable, fmt.Sprintf(
		"shard %q accepts no workspaces (%s): wait, or choose another shard", p.Destination, conditionsv1alpha1.GetMessage(shard, corev1alpha1.ShardSchedulable))}
}
