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
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/ladder"
	"github.com/atoll-dev/atoll/controllers/rollout"
	"github.com/atoll-dev/atoll/controllers/status"
)

// snapshot is all installations of a namespace, as they are.
type snapshot struct {
	roots             []operatorv1alpha1.RootShard
	shards            []operatorv1alpha1.Shard
	caches            []operatorv1alpha1.CacheServer
	virtualWorkspaces []operatorv1alpha1.VirtualWorkspace
	proxies           []operatorv1alpha1.FrontProxy

	components []component
}

// component is one workload with the custom resource it was made for.
type component struct {
	rollout.State
	owner  ladder.Object
	kind   string
	roots  []string // names of the RootShards it belongs to
	prefix string   // what the conditions of its owner call it; "" for the server
}

// observe reads a namespace. Custom resources and workloads come from the caches of the manager.
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

// addComponents makes the components of everything that is not on its way out.
func (o *snapshot) addComponents(deployments []appsv1.Deployment, stores []appsv1.StatefulSet) {
	for i := range o.caches {
		cache := &o.caches[i]
		stage, depth := o.cacheOrder(cache)
		first := len(o.components)
		o.add("CacheServer", cache, o.rootShardsUsing(cache.Name), stage, stage, deployments, stores)
		for j := range o.components[first:] {
			o.components[first+j].Depth = depth
		}
	}
	for i := range o.roots {
		root := &o.roots[i]
		o.add("RootShard", root, []string{root.Name}, rollout.StageRootShard, rollout.StageRootShardStore, deployments, stores)
	}
	for i := range o.shards {
		shard := &o.shards[i]
		o.add("Shard", shard, referencedName(shard.Spec.RootShard.Reference), rollout.StageShard, rollout.StageShardStore, deployments, stores)
	}
	for i := range o.virtualWorkspaces {
		view := &o.virtualWorkspaces[i]
		o.add("VirtualWorkspace", view, o.rootOfTarget(view.Spec.Target), rollout.StageVirtualWorkspace, rollout.StageVirtualWorkspace, deployments, stores)
	}
	for i := range o.proxies {
		proxy := &o.proxies[i]
		o.add("FrontProxy", proxy, referencedName(proxy.Spec.RootShard.Reference), rollout.StageProxy, rollout.StageProxy, deployments, stores)
	}
}

// add makes components of the workloads of one custom resource.
func (o *snapshot) add(kind string, owner ladder.Object, roots []string, stage, store rollout.Stage, deployments []appsv1.Deployment, stores []appsv1.StatefulSet) {
	if owner.GetDeletionTimestamp() != nil {
		return
	}
	title := kind + " " + owner.GetName()
	found := false
	for i := range deployments {
		live := &deployments[i]
		if !metav1.IsControlledBy(live, owner) {
			continue
		}
		state := rollout.State{
			Component: rollout.Component{Title: title, Workload: live.Name, Stage: stage},
			Ready:     status.ForDeployment("", live.Name, live).State == status.Satisfied,
			Serving:   live.Status.ReadyReplicas > 0,
		}
		if live.Spec.Selector.MatchLabels["app.kubernetes.io/component"] == desired.ComponentRootShardProxy {
			state.Title, state.Stage = "the internal proxy of "+title, rollout.StageProxy
			o.components = append(o.components, component{State: state, owner: owner, kind: kind, roots: roots, prefix: "internal proxy: "})
			continue
		}
		found = true
		o.components = append(o.components, component{State: state, owner: owner, kind: kind, roots: roots})
	}
	for i := range stores {
		live := &stores[i]
		if !metav1.IsControlledBy(live, owner) {
			continue
		}
		want := ptr.Deref(live.Spec.Replicas, 1)
		state := rollout.State{
			Component: rollout.Component{Title: "etcd of " + title, Workload: live.Name, Stage: store},
			Ready:     live.Status.ObservedGeneration == live.Generation && live.Status.UpdatedReplicas == want && live.Status.ReadyReplicas == want,
			Serving:   live.Status.ReadyReplicas > 0,
		}
		o.components = append(o.components, component{State: state, owner: owner, kind: kind, roots: roots, prefix: "etcd: "})
	}
	if !found {
		state := rollout.State{Component: rollout.Component{Title: title, Stage: stage}, UnknownReason: "it has no pods yet"}
		o.components = append(o.components, component{State: state, owner: owner, kind: kind, roots: roots})
	}
}

// completeState says of a component what was seen of it last, and what the user wants of it.
func (g *Gate) completeState(c *component) {
	// What is said on a RootShard is said of the whole installation, and stands in the input.
	if c.kind != "RootShard" {
		c.Paused = annotated(c.owner, operatorv1alpha1.AnnotationPauseRollout)
		c.Now = annotated(c.owner, operatorv1alpha1.AnnotationRolloutNow)
	}
	if c.UnknownReason != "" {
		return
	}
	last, ok := g.components.get(c.owner.GetNamespace(), c.Workload, c.owner.GetUID())
	switch {
	case !ok || last.generation != c.owner.GetGeneration():
		c.UnknownReason = notReconciledReason(c.owner)
	default:
		c.Pending = last.pending
	}
}

// notReconciledReason says why a component's spec is not acted on: it was not its turn yet, or something is wrong with it.
func notReconciledReason(owner ladder.Object) string {
	if stalled := meta.FindStatusCondition(owner.GetConditions(), operatorv1alpha1.ConditionStalled); stalled != nil && stalled.Status == metav1.ConditionTrue {
		return stalled.Message
	}
	return "its spec has not been looked at yet"
}

func (o *snapshot) find(workload string) (component, bool) {
	at := slices.IndexFunc(o.components, func(c component) bool { return c.Workload == workload })
	if at < 0 {
		return component{}, false
	}
	return o.components[at], true
}

// record is what there is to remember of a component.
func (o *snapshot) record(c component, pods apply.Pods) record {
	return record{
		namespace: c.owner.GetNamespace(), workload: c.Workload, owner: c.owner.GetUID(), generation: c.owner.GetGeneration(),
		revision: pods.Revision, pending: pods.Change,
	}
}

// rootsOf are the installations of a component, by name. One that belongs to none may roll as it likes.
func (o *snapshot) rootsOf(c component) []*operatorv1alpha1.RootShard {
	var out []*operatorv1alpha1.RootShard
	for i := range o.roots {
		if slices.Contains(c.roots, o.roots[i].Name) && o.roots[i].DeletionTimestamp == nil {
			out = append(out, &o.roots[i])
		}
	}
	return out
}

const defaultTimeout = 10 * time.Minute

// input is what is decided by, for one component in one installation.
func (o *snapshot) input(root *operatorv1alpha1.RootShard, self component, now time.Time) rollout.Input {
	in := rollout.Input{
		Time: now, Self: self.State, Timeout: defaultTimeout,
		Paused: annotated(root, operatorv1alpha1.AnnotationPauseRollout),
		Now:    annotated(root, operatorv1alpha1.AnnotationRolloutNow),
	}
	// What is no duration is as if it was left out; the default is a safe one.
	if timeout, err := time.ParseDuration(root.Annotations[operatorv1alpha1.AnnotationRolloutTimeout]); err == nil && timeout > 0 {
		in.Timeout = timeout
	}
	for _, other := range o.components {
		if other.Workload != self.Workload && slices.Contains(other.roots, root.Name) {
			in.Others = append(in.Others, other.State)
		}
	}
	return in
}

func (o *snapshot) rootOfTarget(target operatorv1alpha1.VirtualWorkspaceTarget) []string {
	if target.ShardRef == nil {
		return referencedName(target.RootShardRef)
	}
	at := slices.IndexFunc(o.shards, func(s operatorv1alpha1.Shard) bool { return s.Name == target.ShardRef.Name })
	if at < 0 {
		return nil
	}
	return referencedName(o.shards[at].Spec.RootShard.Reference)
}

// referencedName is the name in a reference, or nothing.
func referencedName(ref *corev1.LocalObjectReference) []string {
	if ref == nil || ref.Name == "" {
		return nil
	}
	return []string{ref.Name}
}
