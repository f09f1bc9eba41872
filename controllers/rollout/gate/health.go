package gate

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/rollout"
	"github.com/atoll-dev/atoll/controllers/shardclient"
)

// maxConcurrentChecks is how many servers are asked at the same time.
const maxConcurrentChecks = 8

// checkHealth asks all servers of an installation how they are: each whether it is ready, shards whether a workspace on them
// can be used, through the internal proxy and through front proxies, and whether what they publish arrives.
func (g *Gate) checkHealth(ctx context.Context, all *snapshot, root *operatorv1alpha1.RootShard) []rollout.Problem {
	var questions []func() []rollout.Problem
	ask := func(check rollout.Check, title string, question func() error) {
		questions = append(questions, func() []rollout.Problem {
			if err := question(); err != nil {
				return []rollout.Problem{{Check: check, Title: title, Message: shardclient.StableMessage(err)}}
			}
			return nil
		})
	}
	for i := range all.caches {
		cache := &all.caches[i]
		if cache.DeletionTimestamp == nil && slices.Contains(all.rootShardsUsing(cache.Name), root.Name) {
			ask(rollout.CheckReadyz, "CacheServer "+cache.Name, func() error { return g.health.CacheReady(ctx, cache) })
		}
	}
	var doors []desired.Proxy
	for _, proxy := range all.proxiesOf(root) {
		ask(rollout.CheckReadyz, "FrontProxy "+proxy.Name(), func() error { return g.health.ProxyReady(ctx, proxy) })
		if proxy.ReachesAllShardsAs(pki.OperatorGroup) {
			doors = append(doors, proxy)
		}
	}
	for _, virtualWorkspace := range all.virtualWorkspacesOf(root) {
		ask(rollout.CheckReadyz, "VirtualWorkspace "+virtualWorkspace.Name(), func() error { return g.health.VirtualWorkspaceReady(ctx, virtualWorkspace) })
	}
	titles := map[string]string{} // by the name inside the installation
	shards := all.shardsOf(root)
	for _, shard := range shards {
		title := "RootShard " + root.Name
		if !shard.IsRoot() {
			title = "Shard " + shard.Name()
		}
		titles[shard.ShardName()] = title
		ask(rollout.CheckReadyz, title, func() error { return g.health.ShardReady(ctx, root, shard.BaseURL()) })
		ask(rollout.CheckProbe, title, func() error { return g.health.Probe(ctx, shard, doors...) })
		if len(shards) > 1 { // else there is nobody to replicate to
			ask(rollout.CheckLag, title, func() error { return g.checkLag(ctx, shard) })
		}
	}
	if len(shards) > 1 {
		questions = append(questions, func() []rollout.Problem { return g.checkHeartbeats(ctx, root, titles) })
	}
	return runChecks(questions)
}

// maxLag is how far a shard may be behind with what it reads of others, and with what it publishes.
const maxLag = 10 * time.Second

// checkLag is nil when a shard is not behind. Its text has no number that changes from one look to the next.
func (g *Gate) checkLag(ctx context.Context, shard desired.Shard) error {
	lag, err := g.health.Lag(ctx, shard)
	if err == nil && lag > maxLag {
		err = shardclient.Errorf("it is more than %s behind", maxLag)
	}
	return err
}

// checkHeartbeats are the shards whose heartbeats do not arrive.
func (g *Gate) checkHeartbeats(ctx context.Context, root *operatorv1alpha1.RootShard, titles map[string]string) []rollout.Problem {
	lagging, err := g.health.MissingHeartbeats(ctx, root)
	if err != nil {
		return []rollout.Problem{{Check: rollout.CheckLag, Title: "RootShard " + root.Name, Message: shardclient.StableMessage(err)}}
	}
	var out []rollout.Problem
	for name, why := range lagging {
		if title, ours := titles[name]; ours { // the object of a shard that is gone may be there still
			out = append(out, rollout.Problem{Check: rollout.CheckLag, Title: title, Message: why})
		}
	}
	return out
}

// runChecks asks, some questions at a time, and returns what is wrong in a fixed order.
func runChecks(questions []func() []rollout.Problem) []rollout.Problem {
	found := make([][]rollout.Problem, len(questions))
	var running sync.WaitGroup
	free := make(chan struct{}, maxConcurrentChecks)
	for i, question := range questions {
		free <- struct{}{}
		running.Go(func() {
			found[i] = question()
			<-free
		})
	}
	running.Wait()
	out := slices.Concat(found...)
	slices.SortFunc(out, func(a, b rollout.Problem) int {
		return cmp.Or(cmp.Compare(a.Check, b.Check), cmp.Compare(a.Title, b.Title), cmp.Compare(a.Message, b.Message))
	})
	return out
}

// proxiesOf are the front proxies of an installation that serve. Of one that has no ready pod the cluster says so.
func (o *snapshot) proxiesOf(root *operatorv1alpha1.RootShard) []desired.Proxy {
	var out []desired.Proxy
	for i := range o.proxies {
		proxy := &o.proxies[i]
		if slices.Contains(referencedName(proxy.Spec.RootShard.Reference), root.Name) && o.serves(proxy) {
			out = append(out, desired.NewFrontProxy(proxy, root))
		}
	}
	return out
}

// virtualWorkspacesOf are the servers of virtual workspaces of an installation that serve, and whose answers are known.
func (o *snapshot) virtualWorkspacesOf(root *operatorv1alpha1.RootShard) []desired.VirtualWorkspace {
	var out []desired.VirtualWorkspace
	for i := range o.virtualWorkspaces {
		virtualWorkspace := &o.virtualWorkspaces[i]
		if !slices.Contains(o.rootOfTarget(virtualWorkspace.Spec.Target), root.Name) || !o.serves(virtualWorkspace) {
			continue
		}
		target := desired.NewRootShard(root)
		if ref := virtualWorkspace.Spec.Target.ShardRef; ref != nil {
			at := slices.IndexFunc(o.shards, func(s operatorv1alpha1.Shard) bool { return s.Name == ref.Name })
			target = desired.NewShard(&o.shards[at], root)
		}
		if server := desired.NewVirtualWorkspace(virtualWorkspace, target); server.IsStandard() {
			out = append(out, server)
		}
	}
	return out
}

// serves says whether a pod of a custom resource's server is ready.
func (o *snapshot) serves(owner metav1.Object) bool {
	return slices.ContainsFunc(o.components, func(c component) bool {
		return c.owner.GetUID() == owner.GetUID() && c.prefix == "" && c.Serving
	})
}

// shardsOf are the shards of an installation that are not on their way out, the root shard first.
func (o *snapshot) shardsOf(root *operatorv1alpha1.RootShard) []desired.Shard {
	out := []desired.Shard{desired.NewRootShard(root)}
	for i := range o.shards {
		shard := &o.shards[i]
		if shard.DeletionTimestamp == nil && slices.Contains(referencedName(shard.Spec.RootShard.Reference), root.Name) {
			out = append(out, desired.NewShard(shard, root))
		}
	}
	return out
}
