package doctor

import (
	"slices"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// shards finds shards that do not report, do not share their objects, or accept no workspaces, by their Shard objects.
func shards(facts *Facts, limits Limits) []Finding {
	var found []Finding
	open := slices.ContainsFunc(facts.Shards, func(shard Shard) bool {
		return shard.Conditions.Get(string(corev1alpha1.ShardSchedulable)).Status == "True"
	})
	if len(facts.Shards) > 0 && !open {
		found = append(found, Finding{
			Severity: SeverityError, Object: "installation", Message: "no shard accepts new workspaces",
			NextStep: "Uncordon a shard, raise a limit, or add a shard",
		})
	}
	for _, shard := range facts.Shards {
		found = append(found, shardFindings(facts, limits, shard)...)
	}
	return found
}

func shardFindings(facts *Facts, limits Limits, shard Shard) []Finding {
	object := "shard " + shard.Name
	var found []Finding
	ready := shard.Conditions.Get(string(conditionsv1alpha1.Ready))
	since := ready.Since
	if ready.Status == "" {
		since = shard.Created
	}
	switch {
	case ready.Status == "True" || !isLate(facts, since, limits):
	case ready.Status == "Unknown":
		found = append(found, Finding{
			Severity: SeverityError, Object: object, Message: "has not reported its status recently", Detail: ready.Message,
			NextStep: "Look at its pods and their logs: it does not run, or does not reach the root shard. If it is gone for good, delete its Shard",
		})
	default:
		found = append(found, Finding{
			Severity: SeverityError, Object: object, Message: "reports that it is not ready", Detail: ready.Message,
			NextStep: "Look at /readyz?verbose of the shard, or pass --shards-kubeconfig",
		})
	}
	schedulable := shard.Conditions.Get(string(corev1alpha1.ShardSchedulable))
	switch {
	case schedulable.Status != "False":
	case schedulable.Reason == corev1alpha1.ReasonShardCordoned:
		found = append(found, Finding{
			Severity: SeverityInfo, Object: object, Message: "is cordoned: it gets no new workspaces",
			NextStep: "To open it: kubectl kcp uncordon " + shard.Name,
		})
	case schedulable.Reason == corev1alpha1.ReasonShardFull:
		found = append(found, Finding{
			Severity: SeverityWarning, Object: object, Message: "is full: it gets no new workspaces", Detail: schedulable.Message,
			NextStep: "Raise its limit, drain a part of it, or add a shard",
		})
	}
	if published := shard.Conditions.Get(string(corev1alpha1.ShardPublished)); published.Status == "False" && isLate(facts, published.Since, limits) {
		found = append(found, Finding{
			Severity: SeverityError, Object: object, Message: "shares objects that other shards do not see: " + published.Reason, Detail: published.Message,
			NextStep: "Make the object smaller that the condition Published names, or check the cache server",
		})
	}
	if known := shard.Conditions.Get(string(corev1alpha1.ShardMovesKnown)); known.Status == "False" {
		found = append(found, movesUnknown(object, known))
	}
	if applied := shard.Conditions.Get(string(corev1alpha1.ShardResourceLimitsApplied)); applied.Status == "False" && isLate(facts, applied.Since, limits) {
		found = append(found, Finding{
			Severity: SeverityWarning, Object: object, Message: "has limits without an effect", Detail: applied.Message,
			NextStep: "Correct spec.resourceLimits in the admin workspace",
		})
	}
	return found
}

// movesUnknown returns the finding for a shard that was restored to a state of before moves of logical clusters.
func movesUnknown(object string, known Condition) Finding {
	if known.Reason == corev1alpha1.ReasonOutdatedLogicalClusters {
		return Finding{
			Severity: SeverityInfo, Object: object, Message: "has old content of workspaces that other shards serve", Detail: known.Message,
			NextStep: "Nothing for users. When nobody needs it, or to move them back to it, with a kubeconfig of system:masters at the shard: kubectl get --raw /debug/logicalclusters/outdated, " +
				"and for each name kubectl delete --raw /debug/logicalclusters/outdated/<name>",
		}
	}
	return Finding{
		Severity: SeverityError, Object: object, Message: "was restored, and refuses requests to its workspaces: " + known.Reason, Detail: known.Message,
		NextStep: "Start the shards that have not answered, with the feature gate LogicalClusterMigration, delete the Shards of those that are gone for good, or release the restore",
	}
}
