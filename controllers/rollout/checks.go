package rollout

import (
	"slices"
	"time"
)

// Preconditions decides whether a component whose pods are to be replaced may begin. What a refusal says is what the user reads
// in the condition: what is waited for.
var Preconditions = Chain{
	immediateRolloutRequested, // the way out of every refusal below
	notPaused,                 // the user said stop
	noReadyPods,               // like a first start: there is nothing to lose
	holdsSlot,                 // a newer revision replaces the one that is being rolled out, and mends one that failed
	slotFree,                  // one component of an installation moves at a time
	changesGathered,           // what is applied together is ordered together
	earlierStagesRolledOut,    // shards follow their root, proxies follow shards, caches those above them
	firstInItsStage,           // the order does not hang on who asked first
	otherComponentsReady,      // pods that are missing elsewhere are missed more while these go
}

// Base decides, after MayRoll, whether the servers as they are can be built on; Healthy, whether the new pods of the
// component that holds the slot are as good as the old ones were.
var (
	Baseline = Chain{serversReady, probesSucceed, replicationCaughtUp}
	// Healthy ends a rollout: until then the slot is held, and nothing else moves.
	Healthy = Chain{podsReplaced, serversReady, probesSucceed, replicationCaughtUp}
)

// gatherPeriod is how long a change waits for others that were made with it. `kubectl apply` sends objects one by one, in
// any order.
const gatherPeriod = 5 * time.Second

// Reasons, as conditions show them.
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

// MessageRollingOut is what is said of pods that are about to be replaced, and of those that are being.
const MessageRollingOut = "rolling out: " + messageReplacing

const messageReplacing = "pods are being replaced"

func immediateRolloutRequested(in Input) Decision {
	if in.Now || in.Self.Now {
		return Decision{Outcome: Exempt}
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
		return Decision{Outcome: Exempt}
	}
	return pass
}

// holdsSlot exempts from everything below, but not from the slot, which it has: its pods are mixed already.
func holdsSlot(in Input) Decision {
	if in.Slot.Holder == in.Self.Workload {
		return Decision{Outcome: Exempt}
	}
	return pass
}

// slotFree passes when the holder has gone: whoever is deleted in the middle of its rollout holds up nobody.
func slotFree(in Input) Decision {
	holder, there := in.holder()
	switch {
	case !there:
		return pass
	case in.overdue():
		return blocked(ReasonStopped, "the rollout has stopped at %s, whose new pods did not become healthy; see its condition", holder.Title)
	}
	return blocked(ReasonSlotHeld, "waiting for %s, which is being rolled out", holder.Title)
}

func changesGathered(in Input) Decision {
	if in.Time.Sub(in.ChangedAt) < gatherPeriod {
		return blocked(ReasonGatheringChanges, "looking for what else has changed")
	}
	return pass
}

func earlierStagesRolledOut(in Input) Decision {
	for _, other := range in.Others {
		if !other.precedes(in.Self.Component) {
			continue
		}
		if why := other.unsettledReason(); why != "" {
			return blocked(ReasonWaitingForTurn, "waiting for %s, which rolls out first: %s", other.Title, why)
		}
	}
	return pass
}

// firstInItsStage lets one go ahead that the user stopped the one before.
func firstInItsStage(in Input) Decision {
	for _, other := range in.Others {
		if other.sameStage(in.Self.Component) && other.Pending && !other.Paused && other.before(in.Self.Component) {
			return blocked(ReasonWaitingForTurn, "waiting for %s, which rolls out first", other.Title)
		}
	}
	return pass
}

// otherComponentsReady leaves out those that wait to be replaced themselves: that may be what mends them. Nor are the
// component's own pods asked after, for the same reason; the Deployment takes none away before a new one is ready.
func otherComponentsReady(in Input) Decision {
	for _, other := range in.Others {
		if !other.Ready && !other.Pending {
			return blocked(ReasonInstallationWeakened, "waiting for %s, whose pods are not all ready", other.Title)
		}
	}
	return pass
}

func podsReplaced(in Input) Decision {
	if !in.Self.Ready {
		return blocked(ReasonRollingOut, messageReplacing)
	}
	return pass
}

func serversReady(in Input) Decision {
	return in.firstProblem(CheckReadyz, ReasonNotReady, "%s does not say that it is ready: %s")
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

// Progress is the verdict about the holder of the slot: why it is not done stops the rollout once its time is over.
func Progress(in Input) Decision {
	verdict := Healthy.Decide(in)
	if verdict.Outcome != Blocked {
		return verdict
	}
	if !in.overdue() {
		return Decision{Outcome: Blocked, Reason: ReasonRollingOut, Message: "rolling out: " + verdict.Message}
	}
	return Decision{
		Outcome: Stopped, Reason: ReasonStopped,
		Message: "the new pods did not become healthy within " + in.Timeout.String() + ", and nothing else is rolled out: " +
			verdict.Message + ". Correct the spec, or put back what it was",
	}
}
