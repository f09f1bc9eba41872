// Package rollout decides when the pods of a running installation may be replaced: cache servers first, then the root shard, shards one
// at a time, virtual workspaces, proxies. A rollout starts only if the installation is healthy, and no other starts after one that did
// not become healthy.
//
// All functions are pure and decide with observed state; package gate observes, and stores the slot.
package rollout

import (
	"fmt"
	"time"
)

// Stage is the position of a component in the order of a rollout. A server may be newer than those in later stages, never older: each
// supports the protocol of the previous version of the next one.
type Stage int

// The stages of a rollout, in order. A store rolls out before the servers that read it.
const (
	StageCache Stage = iota
	StageRootShardStore
	StageRootShard
	StageShardStore
	StageShard
	StageVirtualWorkspace
	StageProxy
)

// Component is a part of an installation whose pods roll out together. A custom resource without a workload is not a component: it has no
// pods that could be older than those of another one, or missing.
type Component struct {
	Title    string // for users: "Shard alpha"
	Workload string // its Deployment or StatefulSet, by which it holds the slot
	Stage    Stage
	Depth    int // number of caches above it: these replicate objects for the caches below them
}

// less is the total order of the components of an installation.
func (c Component) less(other Component) bool {
	if c.sameStage(other) {
		return c.Workload < other.Workload
	}
	return c.precedes(other)
}

// precedes reports whether a component must match its spec before another one begins.
func (c Component) precedes(other Component) bool {
	return c.Stage < other.Stage || c.Stage == other.Stage && c.Depth < other.Depth
}

// sameStage reports whether neither of two components precedes the other.
func (c Component) sameStage(other Component) bool {
	return c.Stage == other.Stage && c.Depth == other.Depth
}

// State is the observed state of a component.
type State struct {
	Component
	Pending       bool   // its pods are to be replaced
	Missing       string // why not all its pods run the newest revision and are ready; "" if they do
	Serving       bool   // at least one of its pods is ready
	UnknownReason string // why it is unknown whether it matches its spec; "" if it is known
	Paused        bool   // by the user
	Immediate     bool   // the user requests that its pods are replaced immediately
}

// outOfSyncReason is why a component does not match its spec, or "".
func (s State) outOfSyncReason() string {
	switch {
	case s.UnknownReason != "":
		return s.UnknownReason
	case s.Pending:
		return "it is not rolled out yet"
	case s.Missing != "":
		return "its pods are not all ready"
	}
	return ""
}

// Slot is the right to replace pods, of which an installation has one. The zero Slot is free.
type Slot struct {
	Holder   string // workload
	Revision string // that it rolls out
	Since    time.Time
}

// heldBy reports whether a component holds the slot. No component holds a free slot.
func (s Slot) heldBy(c Component) bool { return s.Holder != "" && s.Holder == c.Workload }

// Problem is a failed health check of a server.
type Problem struct {
	Check   Check
	Title   string // of the component
	Message string // the same as long as the problem lasts
}

// Check is a kind of health check.
type Check string

// The health checks. Readiness of pods is observed without one.
const (
	CheckReadyz Check = "readyz" // the server answers /readyz
	CheckProbe  Check = "probe"  // a workspace on it can be created, written and read
	CheckLag    Check = "lag"    // the objects that it publishes reach the other shards
)

// Input is the observed state of one installation.
type Input struct {
	Time    time.Time
	Self    State   // the component to decide about
	Others  []State // of the installation, without Self
	Slot    Slot
	Timeout time.Duration // for new pods to become healthy

	Paused    bool      // the user paused the installation
	Immediate bool      // the user requests that all pods are replaced immediately
	ChangedAt time.Time // when the change of Self was first observed

	Problems []Problem // of all servers; for Baseline and Healthy
}

// HoldsSlot reports whether Self holds the slot.
func (in Input) HoldsSlot() bool { return in.Slot.heldBy(in.Self.Component) }

func (in Input) holder() (State, bool) {
	if in.HoldsSlot() {
		return in.Self, true
	}
	for _, other := range in.Others {
		if in.Slot.heldBy(other.Component) {
			return other, true
		}
	}
	return State{}, false
}

// timedOut reports whether the timeout of the holder of the slot has expired.
func (in Input) timedOut() bool { return in.Time.Sub(in.Slot.Since) > in.Timeout }

// skipRemaining admits Self without the remaining checks.
func (in Input) skipRemaining() Decision {
	if in.HoldsSlot() {
		return Decision{Outcome: Continue}
	}
	return Decision{Outcome: Exempt}
}

// Outcome is the outcome of a check, or of a chain of them.
type Outcome int

const (
	// Pass continues with the next check; a chain that ends with it admits the component, which acquires the slot.
	Pass Outcome = iota
	// Exempt admits the component without the slot.
	Exempt
	// Continue admits the component that holds the slot, with a new revision and a new timeout.
	Continue
	// Blocked waits for the event that the message describes.
	Blocked
	// Stopped waits for the user.
	Stopped
)

// Decision is an outcome with its reason and message for the user. Both depend only on the observed state.
type Decision struct {
	Outcome Outcome
	Reason  string
	Message string
}

var pass = Decision{}

func blocked(reason, format string, args ...any) Decision {
	return Decision{Outcome: Blocked, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Chain is a list of checks. The first that does not pass decides.
type Chain []func(Input) Decision

// Decide runs the checks in order.
func (c Chain) Decide(in Input) Decision {
	for _, check := range c {
		if decision := check(in); decision.Outcome != Pass {
			return decision
		}
	}
	return pass
}
