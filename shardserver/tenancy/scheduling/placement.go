// Package scheduling selects the shard of a new logical cluster: by label selector, health and free capacity, and so
// that shards fill evenly. It tracks the load of shards, and nothing about workspaces or logical clusters.
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

// NoShardError is returned if no shard accepts the logical cluster.
type NoShardError struct {
	// Reasons are the sorted reasons why matching shards do not accept it.
	Reasons []string
}

// Error returns the message of kcp, for a condition.
func (e *NoShardError) Error() string {
	const message = "No available shards to schedule the workspace"
	if len(e.Reasons) == 0 {
		return message
	}
	return message + ": " + strings.Join(e.Reasons, "; ")
}

// candidate is a shard that accepts new logical clusters.
type candidate struct {
	shard *corev1alpha1.Shard
	// load is the number of logical clusters including pending ones; capacity is 0 if unlimited.
	load, capacity int64
	// overSoft reports whether the shard has reached its soft limit, so that others are preferred.
	overSoft bool
}

// Choose returns one of the matching shards that accept new logical clusters: the less loaded one of two random ones,
// so that concurrent decisions by the same reports are spread. own is the report of this shard; the shard called
// excluded is skipped. The error is a *NoShardError.
func (s *Scheduler) Choose(all []*corev1alpha1.Shard, selector labels.Selector, own shardingv1alpha1.ShardReportSpec, excluded string) (*corev1alpha1.Shard, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var candidates []candidate
	noShard := &NoShardError{}
	for _, shard := range all {
		if shard.Name == excluded || !selector.Matches(labels.Set(shard.Labels)) {
			continue
		}
		candidate, reason := s.candidate(shard, own)
		if _, unschedulable := shard.Annotations[corev1alpha1.UnschedulableAnnotationKey]; unschedulable {
			reason = "is closed by its annotation " + corev1alpha1.UnschedulableAnnotationKey
		}
		if reason != "" {
			s.entry(shard.Name).refused = true
			noShard.Reasons = append(noShard.Reasons, fmt.Sprintf("shard %q %s", shard.Name, reason))
			continue
		}
		candidates = append(candidates, candidate)
	}
	if len(candidates) == 0 {
		slices.Sort(noShard.Reasons)
		return nil, noShard
	}
	if preferred := slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool { return c.overSoft }); len(preferred) > 0 {
		candidates = preferred
	}
	chosen := s.pickLessLoaded(candidates)
	s.entry(chosen.shard.Name).pending++
	return chosen.shard, nil
}

// candidate returns a shard with its load, or the reason why it accepts none.
func (s *Scheduler) candidate(shard *corev1alpha1.Shard, own shardingv1alpha1.ShardReportSpec) (c candidate, reason string) {
	report := own
	if shard.Name != s.own {
		live := s.heartbeats.LiveReport(shard.Name)
		if live == nil {
			return candidate{}, "has not reported lately"
		}
		report = live.Spec
	}
	pending := s.pending(shard.Name, report)
	c = candidate{shard: shard, load: logicalClusters(report.Load) + pending, capacity: logicalClusters(report.Capacity)}
	used := workspaces(report.Used) + pending
	soft, hard := heartbeat.WorkspaceLimits(shard.Spec.ResourceLimits)
	if c.overSoft = soft > 0 && used >= soft; hard > 0 {
		if used >= hard {
			return c, fmt.Sprintf("is full: it has %d of %d workspaces", used, hard)
		}
		c.capacity = hard - (used - c.load) // system logical clusters take a part of it
	}
	if reason = UnschedulableReason(report); reason == "" && c.capacity > 0 && c.load >= c.capacity {
		reason = fmt.Sprintf("is full: it has %d of %d logical clusters", c.load, c.capacity)
	}
	return c, reason
}

// UnschedulableReason returns the reason why a shard with this report accepts no new logical clusters, or "".
func UnschedulableReason(report shardingv1alpha1.ShardReportSpec) string {
	for _, condition := range report.Conditions {
		if condition.Status != corev1.ConditionFalse {
			continue
		}
		switch condition.Type {
		case conditionsv1alpha1.Ready:
			return "is not healthy: " + messageOf(condition)
		case corev1alpha1.ShardSchedulable:
			return "accepts no new workspaces: " + messageOf(condition)
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

func workspaces(of corev1.ResourceList) int64 {
	amount := of[heartbeat.Workspaces]
	return amount.Value()
}

func logicalClusters(of corev1.ResourceList) int64 {
	amount := of[heartbeat.LogicalClusters]
	return amount.Value()
}

// pickLessLoaded returns the less loaded one of two random candidates, or the only one.
func (s *Scheduler) pickLessLoaded(candidates []candidate) candidate {
	if len(candidates) == 1 {
		return candidates[0]
	}
	first := s.pick(len(candidates))
	second := s.pick(len(candidates) - 1)
	if second >= first {
		second++
	}
	a, b := candidates[first], candidates[second]
	if b.lessLoadedThan(a) {
		return b
	}
	return a
}

// lessLoadedThan compares the used share of the capacity if both have one, else the load.
func (c candidate) lessLoadedThan(than candidate) bool {
	if c.capacity > 0 && than.capacity > 0 {
		return float64(c.load)/float64(c.capacity) < float64(than.load)/float64(than.capacity)
	}
	return c.load < than.load
}

var random = rand.IntN
