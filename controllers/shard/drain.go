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
)

const (
	// drainInterval is how often a drain looks for moves that have ended, which the operator does not watch.
	drainInterval = 3 * time.Second
	// drainIdleInterval is how often it looks when nothing moves.
	drainIdleInterval = 30 * time.Second
	// maxDrainReasons bounds the workspaces in the message of the condition.
	maxDrainReasons = 10
)

// drain does the next step of a drain, or ends one that the spec has no longer. A drain has no influence on Ready: the shard serves.
func (s *shardScope) drain(ctx context.Context) error {
	const condition = operatorv1alpha1.ConditionDrained
	switch {
	case s.shard.Spec.Drain:
		s.Report.Set(s.drainStep(ctx))
	case meta.FindStatusCondition(s.shard.Status.Conditions, condition) != nil:
		running, err := s.registry.StopDrain(ctx, s.root, s.shard)
		switch {
		case err != nil:
			s.Report.RequeueWithin(drainIdleInterval)
			s.Report.Set(status.Warn(condition, "Unavailable", "the drain cannot be stopped: %v", err))
		case running > 0:
			s.Report.RequeueWithin(drainInterval)
			s.Report.Set(status.Warn(condition, "Stopping", "the drain is being stopped: moves that have taken over are finished (%d)", running))
		default:
			s.Report.RemoveCondition(condition)
		}
	}
	return nil
}

// drainStep does the next step, and returns what has been achieved.
func (s *shardScope) drainStep(ctx context.Context) status.Result {
	const condition = operatorv1alpha1.ConditionDrained
	progress, err := s.registry.Drain(ctx, s.root, s.shard, s.now)
	s.Report.RequeueWithin(drainIdleInterval)
	switch {
	case errors.Is(err, drain.ErrFeatureDisabled):
		return status.Warn(condition, operatorv1alpha1.ReasonFeatureDisabled, "%v, with extraArgs of the RootShard and of the Shards", err)
	case err != nil:
		return status.Warn(condition, "Unavailable", "the drain waits: %v", err)
	case progress.IsDone():
		return status.OK(condition, "Empty", "nothing but what belongs to the shard is left on it")
	case progress.IsIdle():
		return status.Warn(condition, operatorv1alpha1.ReasonRefused, "%s", drainMessage(progress))
	}
	s.Report.RequeueWithin(drainInterval)
	if have := meta.FindStatusCondition(s.shard.Status.Conditions, condition); progress.Busy && have != nil && have.Reason == operatorv1alpha1.ReasonDraining {
		return status.Warn(condition, have.Reason, "%s", have.Message)
	}
	return status.Warn(condition, operatorv1alpha1.ReasonDraining, "%s", drainMessage(progress))
}

// drainMessage has the numbers, and the workspaces that do not move, with the reasons: "12 of 200 moved, 2 refused: ...".
func drainMessage(progress drain.Progress) string {
	if progress.Busy {
		return fmt.Sprintf("%d moving", progress.Moving)
	}
	var reasons []string
	for _, refused := range progress.Refused {
		reasons = append(reasons, refused.LogicalCluster+": "+refused.Reason)
	}
	for _, failed := range progress.Failed {
		reasons = append(reasons, fmt.Sprintf("%s: %s (attempt %d)", failed.LogicalCluster, failed.Reason, failed.Attempts))
	}
	reasons = append(reasons, progress.Waiting...)
	if more := len(reasons) - maxDrainReasons; more > 0 {
		reasons = append(reasons[:maxDrainReasons], fmt.Sprintf("and %d more", more))
	}
	if len(reasons) == 0 {
		return progress.String()
	}
	return progress.String() + ": " + strings.Join(reasons, "; ")
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
		return status.Stall(condition, "HoldsWorkspaces", "deletion waits for %s on the shard that cannot be moved: %s; delete them, %s", formatWorkspaceCount(count), drained.Message, force)
	}
	return status.Wait(condition, operatorv1alpha1.ReasonDraining, "deletion waits for the drain of %s: %s", formatWorkspaceCount(count), drained.Message)
}
