package migration

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/placementrules"
)

// Placement is what the shard of a Workspace knows about a migration of its logical cluster. This shard decides, because it
// alone has the Workspace; it decides about the shard of a new workspace, too.
type Placement struct {
	Workspace *tenancyv1alpha1.Workspace
	// Destination is the name of the destination shard. Shards are those of the installation.
	Origin, Destination string
	Shards              []*corev1alpha1.Shard
	// IgnoresSelector is whether the migration may have a destination that the Workspace does not select.
	IgnoresSelector bool
}

// Verdict returns whether the logical cluster may be placed on the destination shard, and else the first rule that does not
// hold. It does not consider whether the destination has the feature enabled: one that has not does not begin.
func (p Placement) Verdict() *shardingv1alpha1.MigrationPlacement {
	for _, rule := range []func() *refusal{p.exists, p.keepsURL, p.matchesSelector, p.isOpen} {
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
	from, to := placementrules.ExternalURL(origin), placementrules.ExternalURL(p.shard(p.Destination))
	if from == to {
		return nil
	}
	return &refusal{migrationv1alpha1.ReasonDifferentURL, fmt.Sprintf(
		"the URLs of the workspace would change, because shard %q has the external URL %s, and shard %q has %s: choose a shard with the same one, or start both shards with the same --shard-external-url",
		p.Origin, from, p.Destination, to)}
}

// matchesSelector refuses a shard that the Workspace does not select. What is required of the name of the shard is not
// considered: it says where the workspace was created, and the migration names another shard, as clients of kcp expect.
func (p Placement) matchesSelector() *refusal {
	if p.IgnoresSelector {
		return nil
	}
	parsed, err := placementrules.Selector(p.Workspace)
	if err != nil {
		return &refusal{migrationv1alpha1.ReasonSelectorMismatch, err.Error() + ": change it"}
	}
	selector := placementrules.WithoutName(parsed)
	if selector.Matches(labels.Set(p.shard(p.Destination).Labels)) {
		return nil
	}
	return &refusal{migrationv1alpha1.ReasonSelectorMismatch, fmt.Sprintf(
		"spec.location.selector of the workspace (%s) does not match the labels of shard %q: choose a shard that it matches, change the selector, or set the annotation %s=true of the migration", selector, p.Destination, migrationv1alpha1.IgnoreSelectorAnnotationKey)}
}

// isOpen refuses a shard that takes no more logical clusters. Whether it runs is not a rule: the migration waits for that anyway.
func (p Placement) isOpen() *refusal {
	_, broken := placementrules.FromStatus(p.shard(p.Destination), 0).Candidate(placementrules.HasRoom, placementrules.NotClosed, placementrules.Schedulable)
	if broken == nil {
		return nil
	}
	reason, advice := migrationv1alpha1.ReasonShardNotSchedulable, "wait, or choose another shard"
	switch broken.Rule {
	case placementrules.HasRoom:
		reason, advice = migrationv1alpha1.ReasonShardFull, "raise spec.resourceLimits.hard of the Shard in the admin workspace, or choose another shard"
	case placementrules.NotClosed:
		advice = "open it in the admin workspace, or choose another shard"
	}
	return &refusal{reason, fmt.Sprintf("shard %q %s: %s", p.Destination, broken.Message, advice)}
}
