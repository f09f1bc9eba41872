package restore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/shardcompare"
)

const (
	// compareInterval is the time between two comparisons, which list all workspaces of the installation.
	compareInterval = 5 * time.Minute
	// compareRetryInterval is the time after one that has failed, which may have listed most of them.
	compareRetryInterval = time.Minute

	reasonUnavailable = "Unavailable"
)

// compareShards compares one restored shard with the others, again and again until it is released: a person repairs meanwhile what differs. Afterwards,
// the condition stays.
func (s *scope) compareShards(ctx context.Context) error {
	const condition = operatorv1alpha1.ConditionConsistent
	if s.restore.Spec.Shard == nil {
		return nil
	}
	before, out := meta.FindStatusCondition(s.restore.Status.Conditions, condition), s.restore.Status.Shard
	if s.restore.Spec.Release || s.root == nil || out == nil || len(s.installation.shards) == 0 {
		s.keep(before)
		return nil
	}
	if out.ComparedAt != nil && before != nil {
		interval := compareInterval
		if before.Reason == reasonUnavailable {
			interval = compareRetryInterval
		}
		if wait := interval - s.config.Now().Sub(out.ComparedAt.Time); wait > 0 && wait <= interval {
			s.report.RequeueWithin(wait)
			s.keep(before)
			return nil
		}
	}
	var all []desired.Shard
	for _, shard := range s.installation.all {
		all = append(all, shard.Shard)
	}
	found, err := s.servers.CompareShards(ctx, s.root, all, s.installation.shards[0].ShardName(), s.restore.Status.StoppedAt.Time)
	now := metav1.NewTime(s.config.Now())
	out.ComparedAt = &now
	if err != nil {
		s.report.RequeueWithin(compareRetryInterval)
		s.report.Set(status.Warn(condition, reasonUnavailable, "the shards cannot be compared yet: %v", err))
		return nil
	}
	s.report.RequeueWithin(compareInterval)
	if found.IsEmpty() {
		s.report.Set(status.OK(condition, "NothingDiffers", "every Workspace has its logical cluster, and every logical cluster its Workspace"))
		return nil
	}
	s.report.Set(status.Warn(condition, "Differs", "%s", describeDifferences(found)))
	return nil
}

// keep leaves a condition as it is.
func (s *scope) keep(condition *metav1.Condition) {
	switch {
	case condition == nil:
	case condition.Status == metav1.ConditionTrue:
		s.report.Set(status.OK(condition.Type, condition.Reason, "%s", condition.Message))
	default:
		s.report.Set(status.Warn(condition.Type, condition.Reason, "%s", condition.Message))
	}
}

// describeDifferences names some of what differs.
func describeDifferences(found shardcompare.Result) string {
	var parts []string
	for _, part := range []struct {
		names []string
		text  string
	}{
		{found.Gaps, "Workspaces without a logical cluster, which were created after the backup or deleted on another shard since"},
		{found.Orphans, "logical clusters without a Workspace, which were deleted after the backup or whose Workspace was created since"},
		{found.Doubles, "logical clusters that have moved to another shard since, and are served there"},
	} {
		if len(part.names) > 0 {
			parts = append(parts, fmt.Sprintf("%d %s: %s", len(part.names), part.text, list(part.names)))
		}
	}
	return strings.Join(parts, "; ")
}
