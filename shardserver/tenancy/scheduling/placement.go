// Package scheduling selects the shard of a new logical cluster: by label selector, health and free capacity, and so
// that shards fill evenly. It tracks the load of shards, and nothing about workspaces or logical clusters.
package scheduling

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/internal/placementrules"
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
		rated, refusal := s.state(shard, own).Candidate()
		if refusal != nil {
			s.entry(shard.Name).refused = true
			noShard.Reasons = append(noShard.Reasons, fmt.Sprintf("shard %q %s", shard.Name, refusal.Message))
			continue
		}
		candidates = append(candidates, candidate{rated, shard})
	}
	if len(candidates) == 0 {
		slices.Sort(noShard.Reasons)
		return nil, noShard
	}
	if preferred := slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool { return c.Second }); len(preferred) > 0 {
		candidates = preferred
	}
	chosen := s.pickLessLoaded(candidates)
	state := s.entry(chosen.shard.Name)
	state.pending++
	state.changed = time.Now()
	return chosen.shard, nil
}

// Admit decides about the creation of a logical cluster on this shard, directly before it: the shard may have been chosen
// long ago, with many others that wait for their creation. Those that wait do not count, as they are not created yet. The
// caller calls Release if the logical cluster is not created. The error is a *NoShardError.
func (s *Scheduler) Admit(shard *corev1alpha1.Shard, selector labels.Selector, own shardingv1alpha1.ShardReportSpec) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !selector.Matches(labels.Set(shard.Labels)) {
		return &NoShardError{Reasons: []string{fmt.Sprintf("shard %q does not match spec.location.selector", shard.Name)}}
	}
	state := s.entry(shard.Name)
	admitted := &state.admitted
	if load := placementrules.Value(own.Load, placementrules.LogicalClusters); admitted.load != load || time.Since(admitted.changed) > maxUncounted {
		*admitted = admissions{load: load}
	}
	rules := placementrules.State{Shard: shard, Load: own.Load, Capacity: own.Capacity, Used: own.Used, Conditions: own.Conditions, Pending: admitted.count}
	if _, refusal := rules.Candidate(); refusal != nil {
		state.refused = true
		return &NoShardError{Reasons: []string{fmt.Sprintf("shard %q %s", shard.Name, refusal.Message)}}
	}
	admitted.count++
	admitted.changed = time.Now()
	return nil
}

// Release undoes an admission: the logical cluster was not created.
func (s *Scheduler) Release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.entries[name]; state != nil && state.admitted.count > 0 {
		state.admitted.count--
	}
}

// candidate is a shard that accepts new logical clusters. Its load includes the pending ones.
type candidate struct {
	placementrules.Candidate
	shard *corev1alpha1.Shard
}

// state returns what the last report of a shard says.
func (s *Scheduler) state(shard *corev1alpha1.Shard, own shardingv1alpha1.ShardReportSpec) placementrules.State {
	report := own
	if shard.Name != s.own {
		live := s.heartbeats.LiveReport(shard.Name)
		if live == nil {
			return placementrules.State{Shard: shard, Silent: true}
		}
		report = live.Spec
	}
	return placementrules.State{
		Shard: shard, Load: report.Load, Capacity: report.Capacity, Used: report.Used, Conditions: report.Conditions, Pending: s.pending(shard.Name, report),
	}
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
	if b.Compare(a.Candidate) < 0 {
		return b
	}
	return a
}

var random = rand.IntN
