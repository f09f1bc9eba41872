// Package placement decides on which shard a new logical cluster lives: by selector, by what shards report of their health
// and of the room they have, and so that they fill evenly.
//
// It remembers what shards reported, and nothing about workspaces or logical clusters.
package scheduling

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/sharding/heartbeat"
)

// NoShardError says that no shard takes the logical cluster.
type NoShardError struct {
	// Closed says why shards that match do not, sorted.
	Reasons []string
}

// Error is worded as the reference does, for a condition.
func (e *NoShardError) Error() string {
	const message = "No available shards to schedule the workspace"
	if len(e.Reasons) == 0 {
		return message
	}
	return message + ": " + strings.Join(e.Reasons, "; ")
}

// candidate is a shard that takes new logical clusters.
type candidate struct {
	shard *corev1alpha1.Shard
	// load is how many logical clusters it has or will have in a moment, of capacity; no bound is 0.
	load, capacity int64
}

// Choose returns one of the shards that match and take new logical clusters: of two random ones the one with less in it,
// so that many who choose by the same old figures do not all choose the same. own is what this shard knows of itself; the
// shard called excluded is left out. The error is an *NoShardError.
func (s *Scheduler) Choose(all []*corev1alpha1.Shard, selector labels.Selector, own shardingv1alpha1.ShardReportSpec, excluded string) (*corev1alpha1.Shard, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var open []candidate
	none := &NoShardError{}
	for _, shard := range all {
		if shard.Name == excluded || !selector.Matches(labels.Set(shard.Labels)) {
			continue
		}
		candidate, closed := s.candidate(shard, own)
		if _, kept := shard.Annotations[corev1alpha1.UnschedulableAnnotationKey]; kept {
			closed = "is closed by its annotation " + corev1alpha1.UnschedulableAnnotationKey
		}
		if closed != "" {
			s.entry(shard.Name).refused = true
			none.Reasons = append(none.Reasons, fmt.Sprintf("shard %q %s", shard.Name, closed))
			continue
		}
		open = append(open, candidate)
	}
	if len(open) == 0 {
		slices.Sort(none.Reasons)
		return nil, none
	}
	chosen := s.pickLessLoaded(open)
	s.entry(chosen.shard.Name).pending++
	return chosen.shard, nil
}

// candidate returns a shard with its load, or why it takes nothing.
func (s *Scheduler) candidate(shard *corev1alpha1.Shard, own shardingv1alpha1.ShardReportSpec) (c candidate, closed string) {
	report := own
	if shard.Name != s.own {
		alive := s.heartbeats.LiveReport(shard.Name)
		if alive == nil {
			return candidate{}, "has not reported lately"
		}
		report = alive.Spec
	}
	c = candidate{shard: shard, load: logicalClusters(report.Load) + s.pending(shard.Name, report), capacity: logicalClusters(report.Capacity)}
	if closed = UnschedulableReason(report); closed == "" && c.capacity > 0 && c.load >= c.capacity {
		closed = fmt.Sprintf("is full: it has %d of %d logical clusters", c.load, c.capacity)
	}
	return c, closed
}

// Closed returns why a shard that reports this takes no new logical clusters, or "".
func UnschedulableReason(report shardingv1alpha1.ShardReportSpec) string {
	for _, condition := range report.Conditions {
		if condition.Status != corev1.ConditionFalse {
			continue
		}
		switch condition.Type {
		case conditionsv1alpha1.Ready:
			return "is not healthy: " + messageOf(condition)
		case corev1alpha1.ShardSchedulable:
			return "takes no new workspaces: " + messageOf(condition)
		}
	}
	return ""
}

func messageOf(condition conditionsv1alpha1.Condition) string {
	if condition.Message != "" {
		return condition.Message
	}
	return condition.Reason
}

func logicalClusters(of corev1.ResourceList) int64 {
	amount := of[heartbeat.LogicalClusters]
	return amount.Value()
}

// better returns the emptier of two random candidates, or the only one.
func (s *Scheduler) pickLessLoaded(open []candidate) candidate {
	if len(open) == 1 {
		return open[0]
	}
	first := s.pick(len(open))
	second := s.pick(len(open) - 1)
	if second >= first {
		second++
	}
	a, b := open[first], open[second]
	if b.lessLoadedThan(a) {
		return b
	}
	return a
}

// emptier compares by share of the capacity where both have one.
func (c candidate) lessLoadedThan(than candidate) bool {
	if c.capacity > 0 && than.capacity > 0 {
		return float64(c.load)/float64(c.capacity) < float64(than.load)/float64(than.capacity)
	}
	return c.load < than.load
}

var random = rand.IntN
