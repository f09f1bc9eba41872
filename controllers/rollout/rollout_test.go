package rollout_test

import (
	"strings"
	"testing"
	"time"

	"github.com/atoll-dev/atoll/controllers/rollout"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// readyState is a component that matches its spec.
func readyState(title string, stage rollout.Stage) rollout.State {
	return rollout.State{
		Component: rollout.Component{Title: title, Workload: strings.ToLower(strings.ReplaceAll(title, " ", "-")), Stage: stage},
		Serving:   true,
	}
}

// newInput returns a small installation in which alpha has to be replaced, and every check passes.
func newInput() rollout.Input {
	self := readyState("Shard alpha", rollout.StageShard)
	self.Pending = true
	return rollout.Input{
		Time: now, ChangedAt: now.Add(-time.Minute), Timeout: 10 * time.Minute, Self: self,
		Others: []rollout.State{
			readyState("CacheServer cache", rollout.StageCache),
			readyState("RootShard root", rollout.StageRootShard),
			readyState("Shard beta", rollout.StageShard),
			readyState("FrontProxy door", rollout.StageProxy),
		},
	}
}

const (
	cache = iota
	root
	beta
	proxy
)

func TestPreconditions(t *testing.T) {
	for name, tc := range map[string]struct {
		given   func(*rollout.Input)
		outcome rollout.Outcome
		reason  string
		message string
	}{
		"admits a change of a healthy installation": {func(*rollout.Input) {}, rollout.Pass, "", ""},
		"blocks while the installation is paused": {func(in *rollout.Input) { in.Paused = true },
			rollout.Blocked, rollout.ReasonPaused, "paused"},
		"blocks while the component is paused": {func(in *rollout.Input) { in.Self.Paused = true },
			rollout.Blocked, rollout.ReasonPaused, "paused"},
		"ignores that a component of the same stage is paused": {func(in *rollout.Input) { in.Others[beta].Paused = true },
			rollout.Pass, "", ""},
		"exempts an immediate rollout, whatever is wrong": {func(in *rollout.Input) {
			in.Immediate, in.Paused, in.Slot = true, true, rollout.Slot{Holder: "shard-beta", Since: now}
		}, rollout.Exempt, "", ""},
		"exempts a component without ready pods, as at a first start": {func(in *rollout.Input) {
			in.Self.Serving, in.Others[root].Missing, in.Slot = false, "0 of 2 pods are ready", rollout.Slot{Holder: "shard-beta", Since: now}
		}, rollout.Exempt, "", ""},
		"blocks a component without ready pods while paused": {func(in *rollout.Input) { in.Self.Serving, in.Paused = false, true },
			rollout.Blocked, rollout.ReasonPaused, ""},
		"blocks while another shard holds the slot": {func(in *rollout.Input) { in.Slot = rollout.Slot{Holder: "shard-beta", Since: now} },
			rollout.Blocked, rollout.ReasonSlotHeld, "waiting for Shard beta"},
		"reports that a rollout has stopped once the timeout of the holder is over": {func(in *rollout.Input) {
			in.Slot = rollout.Slot{Holder: "shard-beta", Since: now.Add(-time.Hour)}
		}, rollout.Blocked, rollout.ReasonStopped, "stopped at Shard beta"},
		"acquires the slot of a component that does not exist": {func(in *rollout.Input) {
			in.Slot = rollout.Slot{Holder: "shard-gamma", Since: now}
		}, rollout.Pass, "", ""},
		"a free slot is held by nothing, not even by what has no workload": {func(in *rollout.Input) {
			in.Others[beta].Workload = ""
		}, rollout.Pass, "", ""},
		"lets the holder of the slot continue with a newer revision": {func(in *rollout.Input) {
			in.Slot = rollout.Slot{Holder: "shard-alpha", Since: now.Add(-time.Hour)}
			in.Self.Missing, in.Others[proxy].Missing = "1 of 2 pods run the newest revision", "0 of 2 pods are ready"
		}, rollout.Continue, "", ""},
		"waits for changes that are applied together": {func(in *rollout.Input) { in.ChangedAt = now.Add(-time.Second) },
			rollout.Blocked, rollout.ReasonGatheringChanges, ""},
		"blocks before the cache server has rolled": {func(in *rollout.Input) { in.Others[cache].Pending = true },
			rollout.Blocked, rollout.ReasonWaitingForTurn, "CacheServer cache"},
		"blocks while the root shard is not ready": {func(in *rollout.Input) { in.Others[root].Missing = "1 of 2 pods are ready" },
			rollout.Blocked, rollout.ReasonWaitingForTurn, "RootShard root, which rolls out first: its pods"},
		"blocks while the state of the root shard is unknown": {func(in *rollout.Input) { in.Others[root].UnknownReason = "its spec is new" },
			rollout.Blocked, rollout.ReasonWaitingForTurn, "its spec is new"},
		"waits for the cache above": {func(in *rollout.Input) {
			in.Self = readyState("CacheServer europe", rollout.StageCache)
			in.Self.Pending, in.Self.Depth = true, 1
			in.Others[cache].Pending = true
		}, rollout.Blocked, rollout.ReasonWaitingForTurn, "CacheServer cache, which rolls out first: it is not rolled out yet"},
		"waits for no cache below": {func(in *rollout.Input) {
			in.Self = readyState("CacheServer world", rollout.StageCache)
			in.Self.Pending = true
			in.Others[cache].Pending, in.Others[cache].Depth = true, 1
		}, rollout.Pass, "", ""},
		"does not wait for later stages": {func(in *rollout.Input) { in.Others[proxy].Pending, in.Others[proxy].UnknownReason = true, "new" },
			rollout.Pass, "", ""},
		"precedes a shard that is later in the order": {func(in *rollout.Input) { in.Others[beta].Pending = true },
			rollout.Pass, "", ""},
		"waits for a shard that is earlier in the order": {func(in *rollout.Input) {
			in.Others[beta].Workload, in.Others[beta].Pending = "shard-aaa", true
		}, rollout.Blocked, rollout.ReasonWaitingForTurn, "Shard beta"},
		"precedes an earlier shard that is paused": {func(in *rollout.Input) {
			in.Others[beta].Workload, in.Others[beta].Pending, in.Others[beta].Paused = "shard-aaa", true, true
		}, rollout.Pass, "", ""},
		"blocks while pods of another component are missing": {func(in *rollout.Input) { in.Others[proxy].Missing = "1 of 2 pods are ready" },
			rollout.Blocked, rollout.ReasonInstallationWeakened, "FrontProxy door"},
		"ignores missing pods of a component that is pending": {func(in *rollout.Input) {
			in.Others[proxy].Missing, in.Others[proxy].Pending = "0 of 2 pods are ready", true
		}, rollout.Pass, "", ""},
		"ignores its own missing pods": {func(in *rollout.Input) { in.Self.Missing = "1 of 2 pods run the newest revision" },
			rollout.Pass, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := newInput()
			tc.given(&in)
			decision := rollout.Preconditions.Decide(in)
			if decision.Outcome != tc.outcome || decision.Reason != tc.reason || !strings.Contains(decision.Message, tc.message) {
				t.Errorf("got %+v", decision)
			}
		})
	}
}

func TestDecideProgress(t *testing.T) {
	problem := func(check rollout.Check) func(*rollout.Input) {
		return func(in *rollout.Input) {
			in.Problems = []rollout.Problem{{Check: check, Title: "Shard alpha", Message: "boom"}}
		}
	}
	withTimeout := func(mutate func(*rollout.Input)) func(*rollout.Input) {
		return func(in *rollout.Input) {
			mutate(in)
			in.Slot.Since = now.Add(-11 * time.Minute)
		}
	}
	for name, tc := range map[string]struct {
		mutate  func(*rollout.Input)
		outcome rollout.Outcome
		message string
	}{
		"done when pods are replaced and all servers are healthy": {func(*rollout.Input) {}, rollout.Pass, ""},
		"waits while pods are replaced":                           {func(in *rollout.Input) { in.Self.Missing = "1 of 2 pods run the newest revision" }, rollout.Blocked, "rolling out: 1 of 2 pods run the newest revision"},
		"waits for readyz":                                        {problem(rollout.CheckReadyz), rollout.Blocked, "Shard alpha is not ready: boom"},
		"waits for a workspace to be written and read":            {problem(rollout.CheckProbe), rollout.Blocked, "written and read: boom"},
		"waits for replication":                                   {problem(rollout.CheckLag), rollout.Blocked, "in time: boom"},
		"stops when pods are not ready in time":                   {withTimeout(func(in *rollout.Input) { in.Self.Missing = "1 of 2 pods run the newest revision" }), rollout.Stopped, "within 10m0s, and nothing else is rolled out: 1 of 2 pods run the newest revision"},
		"stops with the reason":                                   {withTimeout(problem(rollout.CheckProbe)), rollout.Stopped, "written and read: boom. Correct the spec"},
		"is done after the timeout, too":                          {withTimeout(func(*rollout.Input) {}), rollout.Pass, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := newInput()
			in.Self.Pending = false
			in.Slot = rollout.Slot{Holder: "shard-alpha", Since: now.Add(-time.Minute)}
			tc.mutate(&in)
			decision := rollout.DecideProgress(in)
			if decision.Outcome != tc.outcome || !strings.Contains(decision.Message, tc.message) {
				t.Errorf("got %+v", decision)
			}
		})
	}
}

func TestBaseline(t *testing.T) {
	in := newInput()
	in.Problems = []rollout.Problem{
		{Check: rollout.CheckLag, Title: "Shard beta", Message: "no heartbeat"},
		{Check: rollout.CheckReadyz, Title: "CacheServer cache", Message: "etcd"},
	}
	if decision := rollout.Baseline.Decide(in); decision.Reason != rollout.ReasonNotReady || !strings.Contains(decision.Message, "CacheServer cache") {
		t.Errorf("got %+v", decision)
	}
}
