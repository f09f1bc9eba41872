// Package rollout decides when the pods of a running installation may be replaced: cache servers first, then the root
// shard, shards one at a time, virtual workspaces, proxies; each only from a healthy base, and nothing more after one that
// did not become healthy.
//
// Everything here is a pure function of what was observed; package gate observes, and keeps the slot.
package rollout

import (
	"fmt"
	"time"
)

// Stage is the place of a component in the order of a rollout. A server may be newer than those after it, never older:
// each works with what the next one before it speaks.
type Stage int

// The stages of a rollout, in order. A store rolls before the servers that read it.
const (
	StageCache Stage = iota
	StageRootShardStore
	StageRootShard
	StageShardStore
	StageShard
	StageVirtualWorkspace
	StageProxy
)

// Component is a part of an installation whose pods roll together.
type Component struct {
	Title    string // for users: "Shard alpha"
	Workload string // its Deployment or StatefulSet, by which it holds the slot
	Stage    Stage
	Depth    int // how many caches are above it: what they carry, they carry for those below
}

// before is the order in which components of an installation roll.
func (c Component) before(other Component) bool {
	if c.sameStage(other) {
		return c.Workload < other.Workload
	}
	return c.precedes(other)
}

// precedes says whether a component is to be as its spec wants it before another one begins.
func (c Component) precedes(other Component) bool {
	return c.Stage < other.Stage || c.Stage == other.Stage && c.Depth < other.Depth
}

// sameStage says whether neither of two components is ahead.
func (c Component) sameStage(other Component) bool {
	return c.Stage == other.Stage && c.Depth == other.Depth
}

// State is a component as it was observed.
type State struct {
	Component
	Pending       bool   // its pods wait to be replaced
	Ready         bool   // all its pods run the newest revision and are ready
	Serving       bool   // at least one of its pods is ready
	UnknownReason string // why it cannot be said whether it is as its spec wants it; "" when it can
	Paused        bool   // the user stopped this one
	Now           bool   // the user wants this one replaced at once
}

// unsettledReason says what keeps a component from being as its spec wants it, or "".
func (s State) unsettledReason() string {
	switch {
	case s.UnknownReason != "":
		return s.UnknownReason
	case s.Pending:
		return "it is not rolled yet"
	case !s.Ready:
		return "its pods are not all ready"
	}
	return ""
}

// Slot is what an installation has one of: the right to replace pods. The zero Slot is free.
type Slot struct {
	Holder   string // workload
	Revision string // that it rolls to
	Since    time.Time
}

// Problem is something that is wrong with a server that should be healthy.
type Problem struct {
	Check   Check
	Title   string // of the component
	Message string // the same as long as the problem is
}

// Check is a way to find out whether a server is healthy.
type Check string

// The checks of health. Which pods are ready is known without asking.
const (
	CheckReadyz Check = "readyz" // the server says it is ready
	CheckProbe  Check = "probe"  // a workspace on it can be made, written and read
	CheckLag    Check = "lag"    // what it publishes reaches the other shards
)

// Input is one installation as it was observed.
type Input struct {
	Time    time.Time
	Self    State
	Others  []State // of the installation, without Self
	Slot    Slot
	Timeout time.Duration // for new pods to become healthy

	Paused    bool      // the user stopped the installation
	Now       bool      // the user wants all pods replaced at once
	ChangedAt time.Time // when the change of Self was seen first

	Problems []Problem // with the health of all servers; counts in Base and Healthy
}

func (in Input) holder() (State, bool) {
	if in.Slot.Holder == in.Self.Workload {
		return in.Self, true
	}
	for _, other := range in.Others {
		if other.Workload == in.Slot.Holder {
			return other, true
		}
	}
	return State{}, false
}

// overdue says whether the holder of the slot has had its time.
func (in Input) overdue() bool { return in.Time.Sub(in.Slot.Since) > in.Timeout }

// Outcome is what a check, or a chain of them, comes to.
type Outcome int

const (
	// Pass leaves it to the checks that follow; a chain that ends with it allows.
	Pass Outcome = iota
	// Exempt allows at once, without turn: no slot is needed.
	Exempt
	// Blocked has to wait for what the message names.
	Blocked
	// Stopped waits for the user.
	Stopped
)

// Decision is an outcome with what the user reads about it. Its texts stay the same while the state does.
type Decision struct {
	Outcome Outcome
	Reason  string
	Message string
}

var pass = Decision{}

func blocked(reason, format string, args ...any) Decision {
	return Decision{Outcome: Blocked, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Chain is checks in the order in which they are asked. The first that does not pass decides.
type Chain []func(Input) Decision

// Decide asks the checks.
func (c Chain) Decide(in Input) Decision {
	for _, check := range c {
		if verdict := check(in); verdict.Outcome != Pass {
			return verdict
		}
	}
	return pass
}
