package rollout

import (
	"slices"
	"time"
)

// MayRoll decides whether a component whose pods are to be replaced may begin. What a refusal says is what the user reads
// in the condition: what is waited for.
var MayRoll = Chain{
	userSaysNow,           // the way out of every refusal below
	notPaused,             // the user said stop
	servesNobody,          // like a first start: there is nothing to lose
	holderGoesOn,          // a newer revision replaces the one that is being rolled out, and mends one that failed
	slotFree,              // one component of an installation moves at a time
	changesGathered,       // what is applied together is ordered together
	earlierStagesRolled,   // shards follow their root, proxies follow shards, caches those above them
	firstOfItsStage,       // the order does not hang on who asked first
	nothingElseIsWeakened, // pods that are missing elsewhere are missed more while these go
}

// Base decides, after MayRoll, whether the servers as they are can be built on; Healthy, whether the new pods of the
// component that holds the slot are as good as the old ones were.
var (
	Base = Chain{serversReady, probeWorkspacesAnswer, cacheCaughtUp}
	// Healthy ends a rollout: until then the slot is held, and nothing else moves.
	Healthy = Chain{podsReplaced, serversReady, probeWorkspacesAnswer, cacheCaughtUp}
)

// gatherTime is how long a change waits for others that were made with it. `kubectl apply` sends objects one by one, in
// any order.
const gatherTime = 5 * time.Second

// Reasons, as conditions show them.
const (
	ReasonPaused     = "RolloutPaused"
	ReasonSlotTaken  = "RolloutSlotTaken"
	ReasonGathering  = "GatheringChanges"
	ReasonOutOfTurn  = "WaitingForTurn"
	ReasonWeakened   = "InstallationWeakened"
	ReasonNotReady   = "ServerNotReady"
	ReasonProbeFails = "ProbeWorkspaceFails"
	ReasonLag        = "ReplicationLags"
	ReasonRollingOut = "RollingOut"
	ReasonStopped    = "RolloutStopped"
	ReasonCurrent    = "Current"
)

// Beginning is what is said of pods that are about to be replaced, and of those that are being.
const Beginning = "rolling out: " + replacing

const replacing = "pods are being replaced"

func userSaysNow(in Input) Verdict {
	if in.Now || in.Self.Now {
		return Verdict{Outcome: Exempt}
	}
	return pass
}

func notPaused(in Input) Verdict {
	switch {
	case in.Paused:
		return refuse(ReasonPaused, "rollouts of the installation are paused; remove the annotation from its RootShard")
	case in.Self.Paused:
		return refuse(ReasonPaused, "its rollout is paused; remove the annotation")
	}
	return pass
}

func servesNobody(in Input) Verdict {
	if !in.Self.Serves {
		return Verdict{Outcome: Exempt}
	}
	return pass
}

// holderGoesOn exempts from everything below, but not from the slot, which it has: its pods are mixed already.
func holderGoesOn(in Input) Verdict {
	if in.Slot.Holder == in.Self.Workload {
		return Verdict{Outcome: Exempt}
	}
	return pass
}

// slotFree passes when the holder has gone: whoever is deleted in the middle of its rollout holds up nobody.
func slotFree(in Input) Verdict {
	holder, there := in.holder()
	switch {
	case !there:
		return pass
	case in.overdue():
		return refuse(ReasonStopped, "the rollout has stopped at %s, whose new pods did not become healthy; see its condition", holder.Title)
	}
	return refuse(ReasonSlotTaken, "waiting for %s, which is being rolled out", holder.Title)
}

func changesGathered(in Input) Verdict {
	if in.Time.Sub(in.Seen) < gatherTime {
		return refuse(ReasonGathering, "looking for what else has changed")
	}
	return pass
}

func earlierStagesRolled(in Input) Verdict {
	for _, other := range in.Others {
		if !other.ahead(in.Self.Component) {
			continue
		}
		if why := other.settled(); why != "" {
			return refuse(ReasonOutOfTurn, "waiting for %s, which rolls out first: %s", other.Title, why)
		}
	}
	return pass
}

// firstOfItsStage lets one go ahead that the user stopped the one before.
func firstOfItsStage(in Input) Verdict {
	for _, other := range in.Others {
		if other.alongside(in.Self.Component) && other.Pending && !other.Paused && other.before(in.Self.Component) {
			return refuse(ReasonOutOfTurn, "waiting for %s, which rolls out first", other.Title)
		}
	}
	return pass
}

// nothingElseIsWeakened leaves out those that wait to be replaced themselves: that may be what mends them. Nor are the
// component's own pods asked after, for the same reason; the Deployment takes none away before a new one is ready.
func nothingElseIsWeakened(in Input) Verdict {
	for _, other := range in.Others {
		if !other.Ready && !other.Pending {
			return refuse(ReasonWeakened, "waiting for %s, whose pods are not all ready", other.Title)
		}
	}
	return pass
}

func podsReplaced(in Input) Verdict {
	if !in.Self.Ready {
		return refuse(ReasonRollingOut, replacing)
	}
	return pass
}

func serversReady(in Input) Verdict {
	return in.first(CheckReadyz, ReasonNotReady, "%s does not say that it is ready: %s")
}

func probeWorkspacesAnswer(in Input) Verdict {
	return in.first(CheckProbe, ReasonProbeFails, "a workspace on %s cannot be written and read: %s")
}

func cacheCaughtUp(in Input) Verdict {
	return in.first(CheckLag, ReasonLag, "what %s publishes does not reach the other shards in time: %s")
}

func (in Input) first(check Check, reason, format string) Verdict {
	at := slices.IndexFunc(in.Problems, func(p Problem) bool { return p.Check == check })
	if at < 0 {
		return pass
	}
	return refuse(reason, format, in.Problems[at].Title, in.Problems[at].Message)
}

// Judge is the verdict about the holder of the slot: why it is not done stops the rollout once its time is over.
func Judge(in Input) Verdict {
	verdict := Healthy.Decide(in)
	if verdict.Outcome != Refused {
		return verdict
	}
	if !in.overdue() {
		return Verdict{Outcome: Refused, Reason: ReasonRollingOut, Message: "rolling out: " + verdict.Message}
	}
	return Verdict{
		Outcome: Stopped, Reason: ReasonStopped,
		Message: "the new pods did not become healthy within " + in.Timeout.String() + ", and nothing else is rolled out: " +
			verdict.Message + ". Correct the spec, or put back what it was",
	}
}
