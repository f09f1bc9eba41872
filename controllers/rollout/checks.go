package rollout

import (
	"slices"
	"time"
)

// Preconditions decide whether a component whose pods are to be replaced may start its rollout. The message of a blocking check is the
// message of the condition.
var Preconditions = Chain{
	immediateRolloutRequested, // overrides all checks below
	notPaused,                 // by the user
	noReadyPods,               // as at a first start: no pod can be lost
	holdsSlot,                 // a newer revision replaces the one that is rolling out, and may repair it
	slotFree,                  // one component of an installation rolls out at a time
	changesGathered,           // changes that are applied together are ordered together
	earlierStagesRolledOut,    // root shard, then shards, then proxies; caches after those above them
	firstInStage,              // independent of the order of reconciles
	otherComponentsReady,      // missing pods of another component matter more during a rollout
}

var (
	// Baseline decides, after Preconditions, whether the installation is healthy enough to start.
	Baseline = Chain{serversReady, probesSucceed, replicationCaughtUp}
	// Healthy decides whether the new pods of the holder of the slot are healthy. Until then no other component rolls out.
	Healthy = Chain{podsReplaced, serversReady, probesSucceed, replicationCaughtUp}
)

// batchPeriod is how long a change waits for others that were applied with it: `kubectl apply` sends objects one by
// one, in any order.
const batchPeriod = 5 * time.Second

// Reasons of the condition RolledOut.
const (
	ReasonPaused               = "RolloutPaused"
	ReasonSlotHeld             = "RolloutSlotTaken"
	ReasonGatheringChanges     = "GatheringChanges"
	ReasonWaitingForTurn       = "WaitingForTurn"
	ReasonInstallationWeakened = "InstallationWeakened"
	ReasonNotReady             = "ServerNotReady"
	ReasonProbeFails           = "ProbeWorkspaceFails"
	ReasonLag                  = "ReplicationLags"
	ReasonRollingOut           = "RollingOut"
	ReasonStopped              = "RolloutStopped"
	ReasonCurrent              = "Current"
)

// MessageRollingOut is the message about pods that are being replaced.
const MessageRollingOut = "rolling out: pods are being replaced"

func immediateRolloutRequested(in Input) Decision {
	if in.Immediate || in.Self.Immediate {
		return in.skipRemaining()
	}
	return pass
}

func notPaused(in Input) Decision {
	switch {
	case in.Paused:
		return blocked(ReasonPaused, "rollouts of the installation are paused; remove the annotation from its RootShard")
	case in.Self.Paused:
		return blocked(ReasonPaused, "its rollout is paused; remove the annotation")
	}
	return pass
}

func noReadyPods(in Input) Decision {
	if !in.Self.Serving {
		return in.skipRemaining()
	}
	return pass
}

func holdsSlot(in Input) Decision {
	if in.HoldsSlot() {
		return in.skipRemaining()
	}
	return pass
}

// slotFree passes if the holder does not exist, so that a component that is deleted during its rollout blocks no other.
func slotFree(in Input) Decision {
	holder, ok := in.holder()
	switch {
	case !ok:
		return pass
	case in.timedOut():
		return blocked(ReasonStopped, "the rollout has stopped at %s, whose new pods did not become healthy; see its condition", holder.Title)
	}
	return blocked(ReasonSlotHeld, "waiting for %s, which is being rolled out", holder.Title)
}

func changesGathered(in Input) Decision {
	if in.Time.Sub(in.ChangedAt) < batchPeriod {
		return blocked(ReasonGatheringChanges, "waiting for other changes that were applied with this one")
	}
	return pass
}

func earlierStagesRolledOut(in Input) Decision {
	for _, other := range in.Others {
		if !other.precedes(in.Self.Component) {
			continue
		}
		if reason := other.outOfSyncReason(); reason != "" {
			return blocked(ReasonWaitingForTurn, "waiting for %s, which rolls out first: %s", other.Title, reason)
		}
	}
	return pass
}

// firstInStage ignores components that the user paused.
func firstInStage(in Input) Decision {
	for _, other := range in.Others {
		if other.sameStage(in.Self.Component) && other.Pending && !other.Paused && other.less(in.Self.Component) {
			return blocked(ReasonWaitingForTurn, "waiting for %s, which rolls out first", other.Title)
		}
	}
	return pass
}

// otherComponentsReady ignores components that are pending themselves, because their rollout may repair them. For the same reason the
// component's own pods do not count; its Deployment removes no pod before a new one is ready.
func otherComponentsReady(in Input) Decision {
	for _, other := range in.Others {
		if other.Missing != "" && !other.Pending {
			return blocked(ReasonInstallationWeakened, "waiting for %s, whose pods are not all ready", other.Title)
		}
	}
	return pass
}

func podsReplaced(in Input) Decision {
	if in.Self.Missing != "" {
		return blocked(ReasonRollingOut, "%s", in.Self.Missing)
	}
	return pass
}

func serversReady(in Input) Decision {
	return in.firstProblem(CheckReadyz, ReasonNotReady, "%s is not ready: %s")
}

func probesSucceed(in Input) Decision {
	return in.firstProblem(CheckProbe, ReasonProbeFails, "a workspace on %s cannot be written and read: %s")
}

func replicationCaughtUp(in Input) Decision {
	return in.firstProblem(CheckLag, ReasonLag, "what %s publishes does not reach the other shards in time: %s")
}

func (in Input) firstProblem(check Check, reason, format string) Decision {
	at := slices.IndexFunc(in.Problems, func(p Problem) bool { return p.Check == check })
	if at < 0 {
		return pass
	}
	return blocked(reason, format, in.Problems[at].Title, in.Problems[at].Message)
}

// DecideProgress decides about the holder of the slot: it passes when its new pods are healthy, and stops if they do not become healthy
// in time.
func DecideProgress(in Input) Decision {
	decision := Healthy.Decide(in)
	if decision.Outcome != Blocked {
		return decision
	}
	if !in.timedOut() {
		return Decision{Outcome: Blocked, Reason: ReasonRollingOut, Message: "rolling out: " + decision.Message}
	}
	return Decision{
		Outcome: Stopped, Reason: ReasonStopped,
		Message: "the new pods did not become healthy within " + in.Timeout.String() + ", and nothing else is rolled out: " +
			decision.Message + ". Correct the spec, or put back what it was",
	}
}
