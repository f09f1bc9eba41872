// Package gate lets the pods of an installation be replaced in the order that package rollout decides. It observes the
// installation, keeps the slot in a ConfigMap named <root>-rollout, and asks the servers how they are. What is in the slot
// is all it needs to go on after a restart; what it has in memory it learns again by the first look at each component.
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
)

// Health asks the servers of an installation how they are. *shardclient.Clients is one.
type Health interface {
	ShardReady(ctx context.Context, root *operatorv1alpha1.RootShard, url string) error
	CacheReady(ctx context.Context, cache *operatorv1alpha1.CacheServer) error
	Probe(ctx context.Context, shard desired.Shard, doors ...desired.Proxy) error
	ProxyReady(ctx context.Context, proxy desired.Proxy) error
	VirtualWorkspaceReady(ctx context.Context, virtualWorkspace desired.VirtualWorkspace) error
	MissingHeartbeats(ctx context.Context, root *operatorv1alpha1.RootShard) (map[string]string, error)
	Lag(ctx context.Context, shard desired.Shard) (time.Duration, error)
}

// Gate is an apply.Gate.
type Gate struct {
	cluster    apply.Cluster
	health     Health
	now        func() time.Time
	components componentTracker
	slots      slotTracker
}

// New returns a gate for the installations of a cluster.
func New(cluster apply.Cluster, health Health, now func() time.Time) *Gate {
	return &Gate{cluster: cluster, health: health, now: now, components: componentTracker{}}
}

const condition = operatorv1alpha1.ConditionRolledOut

// MayRoll decides for one Deployment or StatefulSet. A component that several installations share, as cache servers can
// be, needs the slot of each.
func (g *Gate) MayRoll(ctx context.Context, pods apply.Pods) (leave bool, result status.Result, err error) {
	namespace, name := pods.Live.GetNamespace(), pods.Live.GetName()
	all, err := g.observe(ctx, namespace)
	if err != nil {
		return false, status.Result{}, err
	}
	self, ok := all.find(name)
	if !ok { // taken over from another operator, or on its way out
		return true, status.Result{}, nil
	}
	firstSeen := g.components.observe(all.record(self, pods), g.now())
	self.Pending, self.Ready, self.Serving, self.UnknownReason = pods.Change, pods.Ready.State == status.Satisfied, pods.Serve, ""

	for _, root := range all.rootsOf(self) {
		in := all.input(root, self, g.now())
		in.ChangedAt = firstSeen
		if in.Slot, err = g.readSlot(ctx, root); err != nil {
			return false, status.Result{}, err
		}
		verdict, err := g.decide(ctx, all, root, in, pods)
		var late slotConflictError
		if errors.As(err, &late) {
			return false, status.Wait(condition, rollout.ReasonSlotHeld, "%s", late.Error()), nil
		}
		if err != nil {
			return false, status.Result{}, err
		}
		switch verdict.Outcome {
		case rollout.Pass, rollout.Exempt:
		case rollout.Stopped:
			return false, status.Stall(condition, verdict.Reason, "%s%s", self.prefix, verdict.Message), nil
		default:
			return false, status.Wait(condition, verdict.Reason, "%s%s", self.prefix, verdict.Message), nil
		}
	}
	if pods.Change {
		g.components.admitted(all.record(self, pods))
		return true, status.Wait(condition, rollout.ReasonRollingOut, "%s%s", self.prefix, rollout.MessageRollingOut), nil
	}
	return true, status.OK(condition, rollout.ReasonCurrent, "the pods are those of the newest revision"), nil
}

// decide comes to a verdict for one installation, and takes or gives back its slot accordingly.
func (g *Gate) decide(ctx context.Context, all *snapshot, root *operatorv1alpha1.RootShard, in rollout.Input, pods apply.Pods) (rollout.Decision, error) {
	holds := in.Slot.Holder == in.Self.Workload
	switch {
	case !pods.Change && !holds:
		return rollout.Decision{}, nil
	case !pods.Change:
		return g.completeRollout(ctx, all, root, in)
	}
	verdict := rollout.Preconditions.Decide(in)
	if verdict.Outcome == rollout.Pass {
		in.Problems = g.checkHealth(ctx, all, root)
		verdict = rollout.Baseline.Decide(in)
	}
	// Who is exempt from taking turns does not take the slot of another either; the holder starts its time anew.
	if verdict.Outcome == rollout.Pass || (verdict.Outcome == rollout.Exempt && holds) {
		return verdict, g.updateSlot(ctx, root, in.Slot, rollout.Slot{Holder: in.Self.Workload, Revision: pods.Revision, Since: g.now()})
	}
	return verdict, nil
}

// completeRollout gives the slot back once the holder's new pods are healthy. Whether they are is asked only when all of them are
// there.
func (g *Gate) completeRollout(ctx context.Context, all *snapshot, root *operatorv1alpha1.RootShard, in rollout.Input) (rollout.Decision, error) {
	if in.Self.Ready {
		in.Problems = g.checkHealth(ctx, all, root)
	}
	verdict := rollout.Progress(in)
	if verdict.Outcome != rollout.Pass {
		return verdict, nil
	}
	return verdict, g.updateSlot(ctx, root, in.Slot, rollout.Slot{})
}

// annotated says whether an annotation of the user's is set.
func annotated(object metav1.Object, annotation string) bool {
	return object.GetAnnotations()[annotation] == "true"
}
