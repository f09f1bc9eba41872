package shard

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/internal/drain"
	"github.com/atoll-dev/atoll/internal/moves"
)

// draining returns a Shard with a drain that has begun.
func draining(shard *operatorv1alpha1.Shard) {
	shard.Spec.Drain = true
	shard.Finalizers = []string{operatorv1alpha1.FinalizerShard}
	shard.Status.Conditions = []metav1.Condition{{
		Type: operatorv1alpha1.ConditionDrained, Status: metav1.ConditionFalse, Reason: operatorv1alpha1.ReasonDraining, Message: "1 of 3 moved, 2 moving",
	}}
}

func stopping(shard *operatorv1alpha1.Shard) {
	draining(shard)
	shard.Spec.Drain = false
}

// refused returns what is refused of n workspaces.
func refused(n int) []drain.Refused {
	var all []drain.Refused
	for i := range n {
		all = append(all, drain.Refused{LogicalCluster: fmt.Sprint("root:a-", i), Reason: "no shard"})
	}
	return all
}

func TestDrain(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		change func(*operatorv1alpha1.Shard)
		env    func(*env)
		calls  string
		want   string // of the condition Drained; "" without
		event  string
	}{
		"a Shard that is not drained has no condition": {},
		"numbers while workspaces move": {
			draining, func(e *env) { e.progress = drain.Progress{Moved: 12, Left: 188, Moving: 2, Refused: refused(2)} }, "drain",
			"False Draining 12 of 200 moved, 2 moving, 2 refused: root:a-0: no shard; root:a-1: no shard", ""},
		"the message stays while nothing else is known": {
			draining, func(e *env) { e.progress = drain.Progress{Moving: 2, Busy: true} }, "drain", "False Draining 1 of 3 moved, 2 moving", ""},
		"but what holds them up is said": {
			draining, func(e *env) {
				e.progress = drain.Progress{Moved: 3, Moving: 2, Busy: true, Waiting: []string{"drain-x: beta is full"}}
			}, "drain", "False Draining 3 moved, 2 moving: drain-x: beta is full", ""},
		"it leaves a trace before it begins": {
			func(s *operatorv1alpha1.Shard) { s.Spec.Drain = true }, nil, "", "False Draining the shard is being closed for new workspaces", "Normal Draining"},
		"what fails again and again is refused": {
			draining, func(e *env) {
				e.progress = drain.Progress{Left: 1, Failed: []drain.Failed{{Refused: drain.Refused{LogicalCluster: "root:x", Reason: "too large"}, Attempts: drain.MaxAttempts, RetryAt: at}}}
			}, "drain", "False Refused 0 of 1 moved, 1 failed: root:x: too large (attempt 3, the next follows at 2026-01-01T00:00:00Z). Change what the reasons name", "Warning Refused"},
		"what has failed is tried again": {
			draining, func(e *env) {
				e.progress = drain.Progress{Left: 1, Failed: []drain.Failed{{Refused: drain.Refused{LogicalCluster: "root:x", Reason: "it was aborted"}, Attempts: 2, RetryAt: at}}}
			}, "drain", "False Draining 0 of 1 moved, 1 failed: root:x: it was aborted (attempt 2, the next follows at 2026-01-01T00:00:00Z)", ""},
		"a migration that waits has a reason": {
			draining, func(e *env) {
				e.progress = drain.Progress{Left: 1, Moving: 1, Waiting: []string{"drain-x: beta does not run"}}
			}, "drain",
			"False Draining 0 of 1 moved, 1 moving: drain-x: beta does not run", ""},
		"nothing moves": {
			draining, func(e *env) { e.progress = drain.Progress{Moved: 1, Left: 12, Refused: refused(12)} }, "drain",
			"False Refused 1 of 13 moved, 12 refused: root:a-0: no shard", "Warning Refused"},
		"the message has a limit": {
			draining, func(e *env) { e.progress = drain.Progress{Left: 12, Refused: refused(12)} }, "drain", "root:a-9: no shard; and 2 more", "Warning Refused"},
		"nothing is left": {draining, nil, "drain", "True Empty nothing but what belongs to the shard is left on it", "Normal Drained"},
		"the feature is disabled": {
			draining, func(e *env) { e.drainErr = moves.ErrFeatureDisabled }, "drain", "--feature-gates=LogicalClusterMigration=true, with extraArgs of the RootShard", "Warning FeatureDisabled"},
		"the installation does not answer":        {draining, func(e *env) { e.err = errors.New("no connection") }, "drain", "False Unavailable the drain waits: no connection", "Warning Unavailable"},
		"a drain that is switched off is stopped": {stopping, nil, "stop", "", ""},
		"moves are finished first":                {stopping, func(e *env) { e.running = 1 }, "stop", "False Stopping the drain is being stopped: moves that have taken over are finished (1)", "Warning Stopping"},
		"it cannot be stopped":                    {stopping, func(e *env) { e.err = errors.New("no connection") }, "stop", "False Unavailable the drain cannot be stopped: no connection", "Warning Unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t, newRootShard(), newShard(tc.change))
			if tc.env != nil {
				tc.env(s)
			}
			s.reconcile()
			if calls := strings.Join(s.calls, " "); calls != tc.calls {
				t.Errorf("calls are %q, want %q", calls, tc.calls)
			}
			have := ""
			conditions := s.getShard().Status.Conditions
			if condition := meta.FindStatusCondition(conditions, operatorv1alpha1.ConditionDrained); condition != nil {
				have = fmt.Sprintf("%s %s %s", condition.Status, condition.Reason, condition.Message)
			}
			if !strings.Contains(have, tc.want) || (have == "") != (tc.want == "") {
				t.Errorf("condition %q, want %q", have, tc.want)
			}
			if ready := meta.FindStatusCondition(conditions, operatorv1alpha1.ConditionReady); ready.Reason == operatorv1alpha1.ReasonDraining {
				t.Errorf("the drain decides about Ready: %+v", ready)
			}
			close(s.events.Events)
			var drained []string
			for event := range s.events.Events {
				if slices.ContainsFunc([]string{"Drain", "Refused", "Disabled", "Unavailable the drain", "Stopping"}, func(part string) bool { return strings.Contains(event, part) }) {
					drained = append(drained, event)
				}
			}
			if text := strings.Join(drained, "; "); !strings.HasPrefix(text, tc.event) || (text == "") != (tc.event == "") {
				t.Errorf("events %q, want %q", text, tc.event)
			}
		})
	}
}

func TestDeletionWithDrain(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*operatorv1alpha1.Shard)
		env    func(*env)
		calls  string
		text   string // of the condition; "" once it is deleted
		reason string
	}{
		"it waits for what moves": {
			env: func(e *env) { e.count, e.progress = 2, drain.Progress{Moved: 1, Left: 2, Moving: 2} }, calls: "cordon count drain",
			reason: "Draining", text: "deletion waits for the drain of 2 workspaces: 1 of 3 moved, 2 moving"},
		"it waits for the end of migrations": {
			env: func(e *env) { e.progress = drain.Progress{Left: 1, Moving: 1} }, calls: "cordon count drain",
			reason: "Draining", text: "deletion waits for the drain of 0 workspaces: 0 of 1 moved, 1 moving"},
		"it says what does not move": {
			env: func(e *env) { e.count, e.progress = 1, drain.Progress{Left: 1, Refused: refused(1)} }, calls: "cordon count drain",
			reason: "HoldsWorkspaces", text: "deletion waits for 1 workspace on the shard that cannot be moved: 0 of 1 moved, 1 refused: root:a-0: no shard; delete them, or set"},
		"without the feature it says so": {
			env: func(e *env) { e.count, e.drainErr = 1, moves.ErrFeatureDisabled }, calls: "cordon count drain",
			reason: "HoldsWorkspaces", text: "start every shard with --feature-gates=LogicalClusterMigration=true"},
		"it ends when nothing is left": {calls: "cordon count drain unregister"},
		"a workspace that the drain has not seen": {
			env: func(e *env) { e.count = 1 }, calls: "cordon count drain", reason: "Draining", text: "deletion waits for the drain of 1 workspace"},
		"it waits for the migrations of others": {
			env: func(e *env) { e.migrations = [][]string{{"team-a"}} }, calls: "cordon count drain", reason: "Migrating", text: "team-a. Delete those that do not go on, or set"},
		"a drain that was switched off ends first": {
			change: func(s *operatorv1alpha1.Shard) { s.Spec.Drain = false }, env: func(e *env) { e.count, e.running = 1, 1 }, calls: "cordon stop",
			reason: "Migrating", text: "deletion waits for the end of the drain"},
		"forced, it gives up what moves": {
			change: func(s *operatorv1alpha1.Shard) {
				s.Annotations = map[string]string{operatorv1alpha1.AnnotationForceDelete: "true"}
			}, env: func(e *env) { e.count = 1 }, calls: "stop unregister"},
		"without a drain it waits as ever": {
			change: func(s *operatorv1alpha1.Shard) { s.Spec.Drain = false }, env: func(e *env) { e.count = 1 }, calls: "cordon stop count",
			reason: "HoldsWorkspaces", text: "deletion waits for 1 workspace on the shard: delete them"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t, newRootShard(), newShard(func(shard *operatorv1alpha1.Shard) {
				draining(shard)
				if tc.change != nil {
					tc.change(shard)
				}
			}))
			if tc.env != nil {
				tc.env(s)
			}
			if err := s.client.Delete(t.Context(), s.getShard()); err != nil {
				t.Fatal(err)
			}
			s.reconcile()
			if calls := strings.Join(s.calls, " "); calls != tc.calls {
				t.Errorf("calls are %q, want %q", calls, tc.calls)
			}
			shard := s.getShard()
			if (shard == nil) != (tc.text == "") {
				t.Fatalf("gone: %t", shard == nil)
			}
			if shard == nil {
				return
			}
			condition := meta.FindStatusCondition(shard.Status.Conditions, operatorv1alpha1.ConditionWorkspacesGone)
			if condition == nil || condition.Reason != tc.reason || !strings.Contains(condition.Message, tc.text) {
				t.Errorf("got %+v", condition)
			}
		})
	}
}
