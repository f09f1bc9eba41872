package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/moves"
	"github.com/atoll-dev/atoll/internal/rebalance"
)

const (
	// rebalanceInterval is how often the loads of shards are compared, movingInterval while workspaces move.
	rebalanceInterval = time.Minute
	movingInterval    = 5 * time.Second

	defaultRebalanceThreshold     = 20
	defaultRebalanceMaxConcurrent = 1
)

// rebalance compares the shards, and moves workspaces if it may. It has no influence on Ready: the installation serves.
func (s *rootShardScope) rebalance(ctx context.Context) error {
	const condition = operatorv1alpha1.ConditionBalanced
	spec := s.root.Spec.Rebalance
	on := spec != nil && spec.Mode != operatorv1alpha1.RebalanceOff && spec.Mode != ""
	has := meta.FindStatusCondition(s.root.Status.Conditions, condition)
	switch {
	case !on && has == nil:
		s.root.Status.Rebalance = nil
	case !on:
		s.stopRebalancing(ctx)
	case !meta.IsStatusConditionTrue(s.root.Status.Conditions, operatorv1alpha1.ConditionAvailable):
		s.Report.Set(status.Warn(condition, "Unavailable", "the shards cannot be compared: the root shard is not available"))
	case has == nil: // a move that begins without a trace could not be stopped
		s.Report.RequeueWithin(time.Second)
		s.Report.Set(status.Warn(condition, "Unavailable", "the shards have not been compared yet"))
	default:
		s.Report.RequeueWithin(rebalanceInterval)
		s.Report.Set(s.rebalanceStep(ctx, spec))
	}
	return nil
}

// stopRebalancing gives up moves that have not taken over, and removes what the rebalancer has reported.
func (s *rootShardScope) stopRebalancing(ctx context.Context) {
	const condition = operatorv1alpha1.ConditionBalanced
	s.root.Status.Rebalance = nil
	running, err := s.registry.StopRebalancing(ctx, s.root)
	switch {
	case err != nil:
		s.Report.RequeueWithin(rebalanceInterval)
		s.Report.Set(status.Warn(condition, "Unavailable", "rebalancing cannot be stopped: %v", err))
	case running > 0:
		s.Report.RequeueWithin(movingInterval)
		s.Report.Set(status.Warn(condition, "Stopping", "rebalancing is being stopped: moves that have taken over are finished (%d)", running))
	default:
		s.Report.RemoveCondition(condition)
	}
}

// rebalanceStep does the next step, and returns what it has found.
func (s *rootShardScope) rebalanceStep(ctx context.Context, spec *operatorv1alpha1.RebalanceSpec) status.Result {
	const condition = operatorv1alpha1.ConditionBalanced
	options := rebalance.Options{Threshold: ptr.Deref(spec.Threshold, defaultRebalanceThreshold)}
	auto := spec.Mode == operatorv1alpha1.RebalanceAuto
	open, invalid := rebalance.IsOpen(windowsOf(spec), s.now)
	if auto && open {
		options.MaxConcurrent = int(ptr.Deref(spec.MaxConcurrent, defaultRebalanceMaxConcurrent))
	}
	options.GiveUp = !auto
	found, err := s.registry.Rebalance(ctx, s.root, options, s.now)
	switch {
	case errors.Is(err, moves.ErrFeatureDisabled):
		s.root.Status.Rebalance = nil
		return status.Warn(condition, operatorv1alpha1.ReasonFeatureDisabled, "%v, with extraArgs of the RootShard and of the Shards", err)
	case err != nil:
		return status.Warn(condition, "Unavailable", "the shards cannot be compared: %v", err)
	}
	s.root.Status.Rebalance = rebalanceStatus(found)
	if found.Running > found.Stuck {
		s.Report.RequeueWithin(movingInterval)
	}
	over := limited(slices.Concat(found.Over, found.Unread, found.Failed))
	switch {
	case invalid != nil:
		return status.Warn(condition, "InvalidWindow", "no move begins: spec.rebalance.%v", invalid)
	case found.Running > 0:
		return status.Warn(condition, operatorv1alpha1.ReasonMoving, "%d moving, %d moved within %s%s", found.Running, found.Moved, rebalance.Cooldown, prefixed("; ", over))
	case len(found.Over) == 0 && len(found.Unread) == 0:
		return status.OK(condition, "Balanced", "no shard has more than %d percent above its share of workspaces", options.Threshold)
	case len(found.Moves) == 0:
		return status.Warn(condition, operatorv1alpha1.ReasonNothingMovable, "%s. Nothing of it can be moved to a shard that has less than its share: add a shard, or change what workspaces select", over)
	case auto && !open:
		return status.Warn(condition, operatorv1alpha1.ReasonOutsideWindow, "%s. Moves begin in the next of spec.rebalance.windows; status.rebalance.moves has the first", over)
	}
	return status.Warn(condition, operatorv1alpha1.ReasonSuggested, "%s. status.rebalance.moves has what the mode Auto would move", over)
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func windowsOf(spec *operatorv1alpha1.RebalanceSpec) []rebalance.Window {
	var windows []rebalance.Window
	for _, window := range spec.Windows {
		var days []string
		for _, day := range window.Days {
			days = append(days, string(day))
		}
		windows = append(windows, rebalance.Window{Start: window.Start, Duration: window.Duration.Duration, Days: days, TimeZone: window.TimeZone})
	}
	return windows
}

func rebalanceStatus(found rebalance.Decision) *operatorv1alpha1.RebalanceStatus {
	if len(found.Moves) == 0 {
		return nil
	}
	out := &operatorv1alpha1.RebalanceStatus{}
	for _, move := range found.Moves {
		out.Moves = append(out.Moves, operatorv1alpha1.RebalanceMove{
			Workspace: fmt.Sprint(move.LogicalCluster), LogicalCluster: move.Name.String(), From: move.From, To: move.To, Reason: move.Reason,
		})
	}
	return out
}
