package gate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/rollout"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/controllers/workload"
)

// snapshot is the observed state of all installations of a namespace.
type snapshot struct {
	roots             []operatorv1alpha1.RootShard
	shards            []operatorv1alpha1.Shard
	caches            []operatorv1alpha1.CacheServer
	virtualWorkspaces []operatorv1alpha1.VirtualWorkspace
	proxies           []operatorv1alpha1.FrontProxy

	components []component
}

// component is one workload with the custom resource that it belongs to.
type component struct {
	rollout.State
	owner  reconcile.Object
	kind   string
	roots  []string // names of the RootShards it belongs to
	prefix string   // of messages in the conditions of its owner; "" for the server
}

// observe reads a namespace, from the caches of the manager.
func (g *Gate) observe(ctx context.Context, namespace string) (*snapshot, error) {
	var roots operatorv1alpha1.RootShardList
	var shards operatorv1alpha1.ShardList
	var caches operatorv1alpha1.CacheServerList
	var virtualWorkspaces operatorv1alpha1.VirtualWorkspaceList
	var proxies operatorv1alpha1.FrontProxyList
	var deployments appsv1.DeploymentList
	var stores appsv1.StatefulSetList
	for _, list := range []client.ObjectList{&roots, &shards, &caches, &virtualWorkspaces, &proxies, &deployments, &stores} {
		if err := g.cluster.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("listing %T: %w", list, err)
		}
	}
	all := &snapshot{roots: roots.Items, shards: shards.Items, caches: caches.Items, virtualWorkspaces: virtualWorkspaces.Items, proxies: proxies.Items}
	all.addComponents(deployments.Items, stores.Items)
	for i := range all.components {
		g.completeState(&all.components[i])
	}
	slices.SortFunc(all.components, func(a, b component) int {
		return cmp.Or(cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Depth, b.Depth), cmp.Compare(a.Workload, b.Workload))
	})
	return all, nil
}

// addComponents adds the components of all custom resources that are not being deleted.
func (s *snapshot) addComponents(deployments []appsv1.Deployment, stores []appsv1.StatefulSet) {
	for i := range s.caches {
		cache := &s.caches[i]
		stage, depth := s.cacheOrder(cache)
		first := len(s.components)
		s.add("CacheServer", cache, s.listRootShardsUsingCache(cache.Name), stage, stage, deployments, stores)
		for j := range s.components[first:] {
			s.components[first+j].Depth = depth
		}
	}
	for i := range s.roots {
		root := &s.roots[i]
		s.add("RootShard", root, []string{root.Name}, rollout.StageRootShard, rollout.StageRootShardStore, deployments, stores)
	}
	for i := range s.shards {
		shard := &s.shards[i]
		s.add("Shard", shard, refNames(shard.Spec.RootShard.Reference), rollout.StageShard, rollout.StageShardStore, deployments, stores)
	}
	for i := range s.virtualWorkspaces {
		virtualWorkspace := &s.virtualWorkspaces[i]
		s.add("VirtualWorkspace", virtualWorkspace, s.resolveTarget(virtualWorkspace.Spec.Target), rollout.StageVirtualWorkspace, rollout.StageVirtualWorkspace, deployments, stores)
	}
	for i := range s.proxies {
		proxy := &s.proxies[i]
		s.add("FrontProxy", proxy, refNames(proxy.Spec.RootShard.Reference), rollout.StageProxy, rollout.StageProxy, deployments, stores)
	}
}

// add adds the workloads of one custom resource as components. A custom resource without workloads, because its spec is rejected or it
// waits for certificates, has no component, and no rollout waits for it.
func (s *snapshot) add(kind string, owner reconcile.Object, roots []string, stage, store rollout.Stage, deployments []appsv1.Deployment, stores []appsv1.StatefulSet) {
	if owner.GetDeletionTimestamp() != nil {
		return
	}
	title := kind + " " + owner.GetName()
	for i := range deployments {
		live := &deployments[i]
		if !metav1.IsControlledBy(live, owner) {
			continue
		}
		state := rollout.State{
			Component: rollout.Component{Title: title, Workload: live.Name, Stage: stage},
			Missing:   status.RolloutMessage(live, status.PodProblem{}),
			Serving:   live.Status.ReadyReplicas > 0,
		}
		if live.Spec.Selector.MatchLabels["app.kubernetes.io/component"] == desired.ComponentRootShardProxy {
			state.Title, state.Stage = "the internal proxy of "+title, rollout.StageProxy
			s.components = append(s.components, component{State: state, owner: owner, kind: kind, roots: roots, prefix: "internal proxy: "})
			continue
		}
		s.components = append(s.components, component{State: state, owner: owner, kind: kind, roots: roots})
	}
	for i := range stores {
		live := &stores[i]
		if !metav1.IsControlledBy(live, owner) {
			continue
		}
		state := rollout.State{
			Component: rollout.Component{Title: "etcd of " + title, Workload: live.Name, Stage: store},
			Serving:   live.Status.ReadyReplicas > 0,
		}
		if want := ptr.Deref(live.Spec.Replicas, 1); live.Status.ObservedGeneration != live.Generation || live.Status.UpdatedReplicas != want || live.Status.ReadyReplicas != want {
			state.Missing = fmt.Sprintf("%d of %d members are ready", live.Status.ReadyReplicas, want)
		}
		s.components = append(s.components, component{State: state, owner: owner, kind: kind, roots: roots, prefix: "etcd: "})
	}
}

// completeState adds the tracked state of a component, and the annotations of the user.
func (g *Gate) completeState(c *component) {
	// Annotations of a RootShard apply to the whole installation and are part of the Input.
	if c.kind != "RootShard" {
		c.Paused = isAnnotated(c.owner, operatorv1alpha1.AnnotationPauseRollout)
		c.Immediate = isAnnotated(c.owner, operatorv1alpha1.AnnotationRolloutNow)
	}
	last, ok := g.components.get(c.owner.GetNamespace(), c.Workload, c.owner.GetUID())
	switch {
	case !ok || last.generation != c.owner.GetGeneration():
		c.UnknownReason = notReconciledReason(c.owner)
	default:
		c.Pending = last.pending
	}
}

// notReconciledReason is why the spec of a component was not reconciled: it is stalled, it waits for a dependency, or it was not observed
// yet.
func notReconciledReason(owner reconcile.Object) string {
	if stalled := meta.FindStatusCondition(owner.GetConditions(), operatorv1alpha1.ConditionStalled); stalled != nil && stalled.Status == metav1.ConditionTrue {
		return stalled.Message
	}
	const reason = "its spec is not reconciled yet"
	ready := meta.FindStatusCondition(owner.GetConditions(), operatorv1alpha1.ConditionReady)
	if ready != nil && ready.Status == metav1.ConditionFalse && ready.ObservedGeneration == owner.GetGeneration() {
		return reason + ": " + ready.Message
	}
	return reason
}

func (s *snapshot) find(workload string) (component, bool) {
	return s.findFunc(func(c component) bool { return c.Workload == workload })
}

func (s *snapshot) findFunc(match func(component) bool) (component, bool) {
	at := slices.IndexFunc(s.components, match)
	if at < 0 {
		return component{}, false
	}
	return s.components[at], true
}

// newRecord is the record of a reconcile of a component.
func newRecord(c component, pods workload.Pods) record {
	return record{
		namespace: c.owner.GetNamespace(), workload: c.Workload, owner: c.owner.GetUID(), generation: c.owner.GetGeneration(),
		revision: pods.Revision, pending: pods.Change,
	}
}

// listRootShards returns the installations of a component. A component without an installation needs no slot.
func (s *snapshot) listRootShards(c component) []*operatorv1alpha1.RootShard {
	var out []*operatorv1alpha1.RootShard
	for i := range s.roots {
		if slices.Contains(c.roots, s.roots[i].Name) && s.roots[i].DeletionTimestamp == nil {
			out = append(out, &s.roots[i])
		}
	}
	return out
}

const defaultTimeout = 10 * time.Minute

// newInput is the input of the decision about one component in one installation.
func (s *snapshot) newInput(root *operatorv1alpha1.RootShard, self component, now time.Time) rollout.Input {
	in := rollout.Input{
		Time: now, Self: self.State, Timeout: defaultTimeout,
		Paused:    isAnnotated(root, operatorv1alpha1.AnnotationPauseRollout),
		Immediate: isAnnotated(root, operatorv1alpha1.AnnotationRolloutNow),
	}
	// An invalid duration is ignored; the default is safe.
	if timeout, err := time.ParseDuration(root.Annotations[operatorv1alpha1.AnnotationRolloutTimeout]); err == nil && timeout > 0 {
		in.Timeout = timeout
	}
	for _, other := range s.components {
		if other.Workload != self.Workload && slices.Contains(other.roots, root.Name) {
			in.Others = append(in.Others, other.State)
		}
	}
	return in
}

func (s *snapshot) resolveTarget(target operatorv1alpha1.VirtualWorkspaceTarget) []string {
	if target.ShardRef == nil {
		return refNames(target.RootShardRef)
	}
	at := slices.IndexFunc(s.shards, func(shard operatorv1alpha1.Shard) bool { return shard.Name == target.ShardRef.Name })
	if at < 0 {
		return nil
	}
	return refNames(s.shards[at].Spec.RootShard.Reference)
}

// refNames is the name in a reference, as a list of at most one.
func refNames(ref *corev1.LocalObjectReference) []string {
	if ref == nil || ref.Name == "" {
		return nil
	}
	return []string{ref.Name}
}
