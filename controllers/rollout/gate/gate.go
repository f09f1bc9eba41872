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
	ViewsReady(ctx context.Context, views desired.VirtualWorkspace) error
	Silent(ctx context.Context, root *operatorv1alpha1.RootShard) (map[string]string, error)
	Lag(ctx context.Context, shard desired.Shard) (time.Duration, error)
}

// Gate is an apply.Gate.
type Gate struct {
	cluster apply.Cluster
	health  Health
	now     func() time.Time
	seen    memory
	slots   slotSights
}

// New returns a gate for the installations of a cluster.
func New(cluster apply.Cluster, health Health, now func() time.Time) *Gate {
	return &Gate{cluster: cluster, health: health, now: now, seen: memory{}}
}

const condition = operatorv1alpha1.ConditionRolledOut

// MayRoll decides for one Deployment or StatefulSet. A component that several installations share, as cache servers can
// be, needs the slot of each.
func (g *Gate) MayRoll(ctx context.Context, pods apply.Pods) (leave bool, finding status.Finding, err error) {
	namespace, name := pods.Live.GetNamespace(), pods.Live.GetName()
	all, err := g.observe(ctx, namespace)
	if err != nil {
		return false, status.Finding{}, err
	}
	self, ok := all.find(name)
	if !ok { // taken over from another operator, or on its way out
		return true, status.Finding{}, nil
	}
	firstSeen := g.seen.look(all.sight(self, pods), g.now())
	self.Pending, self.Ready, self.Serves, self.Unknown = pods.Change, pods.Ready.Kind == status.Fine, pods.Serve, ""

	for _, root := range all.rootsOf(self) {
		in := all.input(root, self, g.now())
		in.Seen = firstSeen
		if in.Slot, err = g.slot(ctx, root); err != nil {
			return false, status.Finding{}, err
		}
		verdict, err := g.decide(ctx, all, root, in, pods)
		var late errTaken
		if errors.As(err, &late) {
			return false, status.Wait(condition, rollout.ReasonSlotTaken, "%s", late.Error()), nil
		}
		if err != nil {
			return false, status.Finding{}, err
		}
		switch verdict.Outcome {
		case rollout.Pass, rollout.Exempt:
		case rollout.Stopped:
			return false, status.Stall(condition, verdict.Reason, "%s%s", self.part, verdict.Message), nil
		default:
			return false, status.Wait(condition, verdict.Reason, "%s%s", self.part, verdict.Message), nil
		}
	}
	if pods.Change {
		g.seen.passed(all.sight(self, pods))
		return true, status.Wait(condition, rollout.ReasonRollingOut, "%s%s", self.part, rollout.Beginning), nil
	}
	return true, status.OK(condition, rollout.ReasonCurrent, "the pods are those of the newest revision"), nil
}

// decide comes to a verdict for one installation, and takes or gives back its slot accordingly.
func (g *Gate) decide(ctx context.Context, all *observation, root *operatorv1alpha1.RootShard, in rollout.Input, pods apply.Pods) (rollout.Verdict, error) {
	holds := in.Slot.Holder == in.Self.Workload
	switch {
	case !pods.Change && !holds:
		return rollout.Verdict{}, nil
	case !pods.Change:
		return g.finish(ctx, all, root, in)
	}
	verdict := rollout.MayRoll.Decide(in)
	if verdict.Outcome == rollout.Pass {
		in.Problems = g.problems(ctx, all, root)
		verdict = rollout.Base.Decide(in)
	}
	// Who is exempt from taking turns does not take the slot of another either; the holder starts its time anew.
	if verdict.Outcome == rollout.Pass || (verdict.Outcome == rollout.Exempt && holds) {
		return verdict, g.take(ctx, root, in.Slot, rollout.Slot{Holder: in.Self.Workload, Revision: pods.Revision, Since: g.now()})
	}
	return verdict, nil
}

// finish gives the slot back once the holder's new pods are healthy. Whether they are is asked only when all of them are
// there.
func (g *Gate) finish(ctx context.Context, all *observation, root *operatorv1alpha1.RootShard, in rollout.Input) (rollout.Verdict, error) {
	if in.Self.Ready {
		in.Problems = g.problems(ctx, all, root)
	}
	verdict := rollout.Judge(in)
	if verdict.Outcome != rollout.Pass {
		return verdict, nil
	}
	return verdict, g.take(ctx, root, in.Slot, rollout.Slot{})
}

// wants says whether an annotation of the user's is set.
func wants(object metav1.Object, annotation string) bool {
	return object.GetAnnotations()[annotation] == "true"
}
