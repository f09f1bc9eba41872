package shard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/drain"
	"github.com/atoll-dev/atoll/internal/moves"
)

const (
	// drainInterval is how often a drain looks for moves that have ended, which the operator does not watch.
	drainInterval = 3 * time.Second
	// drainIdleInterval is how often it looks when nothing moves.
	drainIdleInterval = 30 * time.Second
	// maxDrainReasons bounds the workspaces in the message of the condition.
	maxDrainReasons = 10
	// refusedAdvice is the next step when nothing moves.
	refusedAdvice = ". Change what the reasons name, or delete these workspaces: the drain goes on by itself"
)

// drain does the next step of a drain, or ends one that the spec has no longer. A drain has no influence on Ready: the shard serves.
func (s *shardScope) drain(ctx context.Context) error {
	switch {
	case s.shard.Spec.Drain:
		s.Report.Set(s.drainStep(ctx))
	case s.hasDrain():
		s.stopDrain(ctx)
	}
	return nil
}

// hasDrain reports whether a drain has begun, and has not been stopped since. The condition is written before the first step.
func (s *shardScope) hasDrain() bool {
	return meta.FindStatusCondition(s.shard.Status.Conditions, operatorv1alpha1.ConditionDrained) != nil
}

// stopDrain ends a drain, and reports whether nothing of it is left.
func (s *shardScope) stopDrain(ctx context.Context) bool {
	const condition = operatorv1alpha1.ConditionDrained
	running, err := s.registry.StopDrain(ctx, s.root, s.shard)
	switch {
	case err != nil:
		s.Report.RequeueWithin(drainIdleInterval)
		s.Report.Set(status.Warn(condition, "Unavailable", "the drain cannot be stopped: %v", err))
	case running.Moving > 0:
		s.Report.RequeueWithin(drainInterval)
		reasons := ""
		if len(running.Waiting) > 0 {
			reasons = ": " + limited(running.Waiting)
		}
		s.Report.Set(status.Warn(condition, "Stopping", "the drain is being stopped: moves that have taken over are finished (%d)%s", running.Moving, reasons))
	default:
		s.Report.RemoveCondition(condition)
		return true
	}
	return false
}

// drainStep does the next step, and returns what has been achieved.
func (s *shardScope) drainStep(ctx context.Context) status.Result {
	const condition = operatorv1alpha1.ConditionDrained
	if !s.hasDrain() { // a drain that begins without a trace could not be stopped
		s.Report.RequeueWithin(time.Second)
		return status.Warn(condition, operatorv1alpha1.ReasonDraining, "the shard is being closed for new workspaces")
	}
	progress, err := s.registry.Drain(ctx, s.root, s.shard, s.now)
	s.Report.RequeueWithin(drainIdleInterval)
	switch {
	case errors.Is(err, moves.ErrFeatureDisabled):
		return status.Warn(condition, operatorv1alpha1.ReasonFeatureDisabled, "%v, with extraArgs of the RootShard and of the Shards", err)
	case err != nil:
		return status.Warn(condition, "Unavailable", "the drain waits: %v", err)
	case progress.IsDone():
		return status.OK(condition, "Empty", "nothing but what belongs to the shard is left on it")
	case progress.IsIdle():
		return status.Warn(condition, operatorv1alpha1.ReasonRefused, "%s", drainMessage(progress)+refusedAdvice)
	}
	s.Report.RequeueWithin(drainInterval)
	have := meta.FindStatusCondition(s.shard.Status.Conditions, condition)
	if progress.Busy && len(progress.Waiting) == 0 && have != nil && have.Reason == operatorv1alpha1.ReasonDraining {
		return status.Warn(condition, have.Reason, "%s", have.Message)
	}
	return status.Warn(condition, operatorv1alpha1.ReasonDraining, "%s", drainMessage(progress))
}

// drainMessage has the numbers, and the workspaces that do not move, with the reasons: "12 of 200 moved, 2 refused: ...".
func drainMessage(progress drain.Progress) string {
	reasons := progress.Reasons()
	if len(reasons) == 0 {
		return progress.String()
	}
	return progress.String() + ": " + limited(reasons)
}

// limited returns the first of many reasons.
func limited(reasons []string) string {
	if more := len(reasons) - maxDrainReasons; more > 0 {
		reasons = append(reasons[:maxDrainReasons:maxDrainReasons], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(reasons, "; ")
}

// drainForDeletion drains a shard that is being deleted. It is satisfied when the shard has no workspaces, and no move needs it.
func (s *shardScope) drainForDeletion(ctx context.Context, count int, force string) status.Result {
	const condition = operatorv1alpha1.ConditionWorkspacesGone
	drained := s.drainStep(ctx)
	s.Report.Set(drained)
	switch {
	case drained.State == status.Satisfied && count == 0:
		return status.Result{}
	case drained.Reason == operatorv1alpha1.ReasonRefused, drained.Reason == operatorv1alpha1.ReasonFeatureDisabled:
		return status.Stall(condition, "HoldsWorkspaces", "deletion waits for %s on the shard that cannot be moved: %s; delete them, %s", formatWorkspaceCount(count), strings.TrimSuffix(drained.Message, refusedAdvice), force)
	}
	return status.Wait(condition, operatorv1alpha1.ReasonDraining, "deletion waits for the drain of %s: %s", formatWorkspaceCount(count), drained.Message)
}

// awaitMigrations reports migrations from or to a shard that is being deleted. What they copy to it is counted only when the shard serves it, and
// what they have taken from it is in use until they have ended.
func (s *shardScope) awaitMigrations(ctx context.Context, force string) status.Result {
	const condition = operatorv1alpha1.ConditionWorkspacesGone
	names, err := s.registry.Migrations(ctx, s.root, s.shard)
	switch {
	case err != nil:
		return status.Wait(condition, "RootShardUnavailable", "deletion waits because the migrations from and to the shard cannot be read: %v; repair it, %s", err, force)
	case len(names) > 0:
		return status.Wait(condition, "Migrating", "deletion waits for %d LogicalClusterMigrations from or to the shard, which are finished first: %s. Delete those that do not go on, %s", len(names), limited(names), force)
	}
	return status.Result{}
}
