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

// maxConcurrentChecks bounds the health checks of one installation at the same time.
const maxConcurrentChecks = 8

// checkHealth checks all servers of an installation: /readyz of each; on each shard a probe workspace, through the
// internal proxy and the front proxies; and whether the shards replicate to each other.
func (g *Gate) checkHealth(ctx context.Context, all *snapshot, root *operatorv1alpha1.RootShard) []rollout.Problem {
	var checks []func() []rollout.Problem
	add := func(check rollout.Check, title string, run func() error) {
		checks = append(checks, func() []rollout.Problem {
			if err := run(); err != nil {
				return []rollout.Problem{{Check: check, Title: title, Message: shardclient.StableMessage(err)}}
			}
			return nil
		})
	}
	for i := range all.caches {
		cache := &all.caches[i]
		if all.hasServer(cache) && slices.Contains(all.listRootShardsUsingCache(cache.Name), root.Name) {
			add(rollout.CheckReadyz, "CacheServer "+cache.Name, func() error { return g.health.CacheReady(ctx, cache) })
		}
	}
	var probeProxies []desired.Proxy // proxies that probes go through
	for _, proxy := range all.listProxies(root) {
		add(rollout.CheckReadyz, "FrontProxy "+proxy.Name(), func() error { return g.health.ProxyReady(ctx, proxy) })
		if proxy.ReachesAllShardsAs(pki.OperatorGroup) {
			probeProxies = append(probeProxies, proxy)
		}
	}
	for _, virtualWorkspace := range all.listVirtualWorkspaces(root) {
		add(rollout.CheckReadyz, "VirtualWorkspace "+virtualWorkspace.Name(), func() error { return g.health.VirtualWorkspaceReady(ctx, virtualWorkspace) })
	}
	titles := map[string]string{} // by name inside the installation
	shards := all.listShards(root)
	for _, shard := range shards {
		title := "RootShard " + root.Name
		if !shard.IsRoot() {
			title = "Shard " + shard.Name()
		}
		titles[shard.ShardName()] = title
		add(rollout.CheckReadyz, title, func() error { return g.health.ShardReady(ctx, shard) })
		add(rollout.CheckProbe, title, func() error { return g.health.Probe(ctx, shard, probeProxies...) })
		if len(shards) > 1 { // one alone does not replicate
			add(rollout.CheckLag, title, func() error { return g.checkLag(ctx, shard) })
		}
	}
	if len(shards) > 1 {
		checks = append(checks, func() []rollout.Problem { return g.checkHeartbeats(ctx, root, titles) })
	}
	return runChecks(checks)
}

// maxLag is the maximum replication lag of a healthy shard, in reading and in publishing.
const maxLag = 10 * time.Second

// checkLag returns an error if the replication lag of a shard is too high. The message contains no number that changes between checks.
func (g *Gate) checkLag(ctx context.Context, shard desired.Shard) error {
	lag, err := g.health.Lag(ctx, shard)
	if err == nil && lag > maxLag {
		err = shardclient.Errorf("it is more than %s behind", maxLag)
	}
	return err
}

// checkHeartbeats returns the shards whose heartbeats do not arrive at the root shard.
func (g *Gate) checkHeartbeats(ctx context.Context, root *operatorv1alpha1.RootShard, titles map[string]string) []rollout.Problem {
	missing, err := g.health.MissingHeartbeats(ctx, root)
	if err != nil {
		return []rollout.Problem{{Check: rollout.CheckLag, Title: "RootShard " + root.Name, Message: shardclient.StableMessage(err)}}
	}
	var out []rollout.Problem
	for name, reason := range missing {
		if title, ok := titles[name]; ok { // the object of a deleted shard may still exist
			out = append(out, rollout.Problem{Check: rollout.CheckLag, Title: title, Message: reason})
		}
	}
	return out
}

// runChecks runs checks concurrently and returns the problems in a fixed order.
func runChecks(checks []func() []rollout.Problem) []rollout.Problem {
	problems := make([][]rollout.Problem, len(checks))
	var wg sync.WaitGroup
	semaphore := make(chan struct{}, maxConcurrentChecks)
	for i, check := range checks {
		semaphore <- struct{}{}
		wg.Go(func() {
			problems[i] = check()
			<-semaphore
		})
	}
	wg.Wait()
	out := slices.Concat(problems...)
	slices.SortFunc(out, func(a, b rollout.Problem) int {
		return cmp.Or(cmp.Compare(a.Check, b.Check), cmp.Compare(a.Title, b.Title), cmp.Compare(a.Message, b.Message))
	})
	return out
}

// listProxies returns the front proxies of an installation that serve. If one has no ready pod, its Deployment reports that.
func (s *snapshot) listProxies(root *operatorv1alpha1.RootShard) []desired.Proxy {
	var out []desired.Proxy
	for i := range s.proxies {
		proxy := &s.proxies[i]
		if slices.Contains(refNames(proxy.Spec.RootShard.Reference), root.Name) && s.isServing(proxy) {
			out = append(out, desired.NewFrontProxy(proxy, root))
		}
	}
	return out
}

// listVirtualWorkspaces returns the standard virtual workspace servers of an installation that serve.
func (s *snapshot) listVirtualWorkspaces(root *operatorv1alpha1.RootShard) []desired.VirtualWorkspace {
	var out []desired.VirtualWorkspace
	for i := range s.virtualWorkspaces {
		virtualWorkspace := &s.virtualWorkspaces[i]
		if !slices.Contains(s.resolveTarget(virtualWorkspace.Spec.Target), root.Name) || !s.isServing(virtualWorkspace) {
			continue
		}
		target := desired.NewRootShard(root)
		if ref := virtualWorkspace.Spec.Target.ShardRef; ref != nil {
			at := slices.IndexFunc(s.shards, func(shard operatorv1alpha1.Shard) bool { return shard.Name == ref.Name })
			target = desired.NewShard(&s.shards[at], root)
		}
		if server := desired.NewVirtualWorkspace(virtualWorkspace, target); server.IsStandard() {
			out = append(out, server)
		}
	}
	return out
}

// hasServer reports whether the server of a custom resource that is not being deleted has a Deployment. A server without one cannot be
// checked.
func (s *snapshot) hasServer(owner metav1.Object) bool {
	_, ok := s.findServer(owner)
	return ok
}

// isServing reports whether a pod of the server of a custom resource is ready.
func (s *snapshot) isServing(owner metav1.Object) bool {
	server, _ := s.findServer(owner)
	return server.Serving
}

func (s *snapshot) findServer(owner metav1.Object) (component, bool) {
	return s.findFunc(func(c component) bool { return c.owner.GetUID() == owner.GetUID() && c.prefix == "" })
}

// listShards returns the shards of an installation that have servers, the root shard first.
func (s *snapshot) listShards(root *operatorv1alpha1.RootShard) []desired.Shard {
	var out []desired.Shard
	if s.hasServer(root) {
		out = append(out, desired.NewRootShard(root))
	}
	for i := range s.shards {
		shard := &s.shards[i]
		if s.hasServer(shard) && slices.Contains(refNames(shard.Spec.RootShard.Reference), root.Name) {
			out = append(out, desired.NewShard(shard, root))
		}
	}
	return out
}
