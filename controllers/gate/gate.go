// Package gate admits rollouts in the order that package rollout decides. It observes the installation, stores the slot in a ConfigMap
// named <root>-rollout, and checks the health of the servers. Only the ConfigMap must survive a restart; the state in memory is complete
// again after one reconcile of each component.
package gate

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/rollout"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/controllers/workload"
)

// Health checks the servers of an installation. *shardclient.Clients implements it.
type Health interface {
	ShardReady(ctx context.Context, shard desired.Shard) error
	CacheReady(ctx context.Context, cache *operatorv1alpha1.CacheServer) error
	ProxyReady(ctx context.Context, proxy desired.Proxy) error
	VirtualWorkspaceReady(ctx context.Context, server desired.VirtualWorkspace) error
	Probe(ctx context.Context, shard desired.Shard, proxies ...desired.Proxy) error
	MissingHeartbeats(ctx context.Context, root *operatorv1alpha1.RootShard) (map[string]string, error)
	Lag(ctx context.Context, shard desired.Shard) (time.Duration, error)
}

// Gate is a workload.Gate.
type Gate struct {
	cluster    apply.Cluster
	health     Health
	now        func() time.Time
	components componentTracker
	slots      slotTracker
}

// New returns a gate for the installations of a cluster.
func New(cluster apply.Cluster, health Health, now func() time.Time) *Gate {
	return &Gate{cluster: cluster, health: health, now: now}
}

const condition = operatorv1alpha1.ConditionRolledOut

// Admit implements workload.Gate. A component that several installations share, for example a cache server, needs the slot of each.
func (g *Gate) Admit(ctx context.Context, pods workload.Pods) (admitted bool, result status.Result, err error) {
	all, err := g.observe(ctx, pods.Live.GetNamespace())
	if err != nil {
		return false, status.Result{}, err
	}
	self, ok := all.find(pods.Live.GetName())
	if !ok { // adopted from another operator, or being deleted
		return true, status.Result{}, nil
	}
	changedAt := g.components.observe(newRecord(self, pods), g.now())
	self.Pending, self.Missing, self.Serving, self.UnknownReason = pods.Change, pods.Missing, pods.Serving, ""

	for _, root := range all.listRootShards(self) {
		in := all.newInput(root, self, g.now())
		in.ChangedAt = changedAt
		if in.Slot, err = g.readSlot(ctx, root); err != nil {
			return false, status.Result{}, err
		}
		decision, err := g.decide(ctx, all, root, in, pods)
		var conflict slotConflictError
		switch {
		case errors.As(err, &conflict):
			return false, status.Wait(condition, rollout.ReasonSlotHeld, "%s", conflict.Error()), nil
		case err != nil:
			return false, status.Result{}, err
		case decision.Outcome == rollout.Stopped:
			return false, status.Stall(condition, decision.Reason, "%s%s", self.prefix, decision.Message), nil
		case decision.Outcome == rollout.Blocked:
			return false, status.Wait(condition, decision.Reason, "%s%s", self.prefix, decision.Message), nil
		}
	}
	if pods.Change {
		g.components.markAdmitted(newRecord(self, pods))
		return true, status.Wait(condition, rollout.ReasonRollingOut, "%s%s", self.prefix, rollout.MessageRollingOut), nil
	}
	return true, status.OK(condition, rollout.ReasonCurrent, "all pods run the newest revision"), nil
}

// decide returns the decision for one installation, and acquires or releases its slot accordingly.
func (g *Gate) decide(ctx context.Context, all *snapshot, root *operatorv1alpha1.RootShard, in rollout.Input, pods workload.Pods) (rollout.Decision, error) {
	switch {
	case !pods.Change && !in.HoldsSlot():
		return rollout.Decision{}, nil
	case !pods.Change:
		return g.completeRollout(ctx, all, root, in)
	}
	decision := rollout.Preconditions.Decide(in)
	if decision.Outcome == rollout.Pass {
		in.Problems = g.checkHealth(ctx, all, root)
		decision = rollout.Baseline.Decide(in)
	}
	if decision.Outcome == rollout.Pass || decision.Outcome == rollout.Continue {
		slot := rollout.Slot{Holder: in.Self.Workload, Revision: pods.Revision, Since: g.now()}
		return decision, g.updateSlot(ctx, root, in.Slot, slot)
	}
	return decision, nil
}

// completeRollout releases the slot when the new pods of its holder are healthy. It checks their health only when all of them are ready.
func (g *Gate) completeRollout(ctx context.Context, all *snapshot, root *operatorv1alpha1.RootShard, in rollout.Input) (rollout.Decision, error) {
	if in.Self.Missing == "" {
		in.Problems = g.checkHealth(ctx, all, root)
	}
	decision := rollout.DecideProgress(in)
	if decision.Outcome != rollout.Pass {
		return decision, nil
	}
	return decision, g.updateSlot(ctx, root, in.Slot, rollout.Slot{})
}

// isAnnotated reports whether the user set an annotation to "true".
func isAnnotated(object metav1.Object, annotation string) bool {
	return object.GetAnnotations()[annotation] == "true"
}
