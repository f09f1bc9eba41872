package publisher

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	adminv1alpha1 "github.com/atoll-dev/atoll/api/admin/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// condition selects the objects of a resource that are replicated.
type condition int

const (
	// always selects all objects. One that is being deleted stays as it was until it is gone.
	always condition = iota
	// untilGone selects all objects. One that is being deleted is published as it would be otherwise, because other shards have to act
	// on its status before it can go.
	untilGone
	// labelled selects the objects with the replicate label, which package replicatelabel sets, and LogicalClusters that limit
	// the workspaces below them, which every shard enforces.
	labelled
	// labelledWhereShared selects the labelled objects of logical clusters that have the label themselves, because they
	// contain exports, types or cached resources. The binding of an administrator has the label in every workspace, as it
	// allows to bind exports; without an export no other shard needs it, and it must not be replicated.
	labelledWhereShared
)

// replicated are the resources whose objects are published unchanged.
var replicated = map[schema.GroupResource]condition{
	adminv1alpha1.Resource("permissionclaimpolicies"):                     always,
	apisv1alpha2.Resource("apiexports"):                                   always,
	apisv1alpha2.Resource("apiexportendpointslices"):                      always,
	apisv1alpha2.Resource("apiresourceschemas"):                           always,
	apisv1alpha2.Resource("apiconversions"):                               always,
	cachev1alpha1.Resource("clustercachedresources"):                      always,
	cachev1alpha1.Resource("clustercachedresourceendpointslices"):         always,
	corev1alpha1.Resource("shards"):                                       always,
	corev1alpha1.Resource("logicalclusters"):                              labelled,
	tenancyv1alpha1.Resource("workspacetypes"):                            always,
	tenancyv1alpha1.Resource("workspaceauthenticationconfigurations"):     always,
	{Group: "migration.kcp.io", Resource: "logicalclustermigrations"}:     untilGone,
	admissionResource("mutatingwebhookconfigurations"):                    always,
	admissionResource("validatingwebhookconfigurations"):                  always,
	admissionResource("validatingadmissionpolicies"):                      always,
	admissionResource("validatingadmissionpolicybindings"):                always,
	admissionResource("mutatingadmissionpolicies"):                        always,
	admissionResource("mutatingadmissionpolicybindings"):                  always,
	{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}:        labelledWhereShared,
	{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"}: labelledWhereShared,
}

func admissionResource(resource string) schema.GroupResource {
	return schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: resource}
}

// ReplicatedResources returns the resources whose objects this shard publishes unchanged: those of the contract that it
// stores.
func ReplicatedResources(registry *storage.Registry) []client.Resource {
	var all []client.Resource
	for gr := range replicated {
		if resource, ok := client.FindResource(gr); ok && isStored(registry, gr) {
			all = append(all, resource)
		}
	}
	return all
}

func isStored(registry *storage.Registry, gr schema.GroupResource) bool {
	_, err := registry.Get(gr)
	return err == nil
}

// ObjectSources returns the sources of ReplicatedResources.
func ObjectSources(registry *storage.Registry, restored Restored) []Source {
	var sources []Source
	for _, resource := range ReplicatedResources(registry) {
		gr := resource.GroupResource()
		c := &objectSource{
			objects: storage.NewReader[runtime.Object](registry, gr), condition: replicated[gr],
			clusters:      storage.NewReader[*corev1alpha1.LogicalCluster](registry, corev1alpha1.Resource("logicalclusters")),
			clusterStates: map[logicalcluster.Name]clusterState{},
		}
		sources = append(sources, restored.AwaitCluster(Source{
			Resource: gr,
			Inputs: []controller.Source{
				{Resource: gr, MapFunc: publishedKeys},
				{Resource: corev1alpha1.Resource("logicalclusters"), MapFunc: c.clusterKeys},
			},
			Desired: c.desired,
			List:    c.list,
		}))
	}
	return sources
}

// objectSource publishes the objects of one resource unchanged.
type objectSource struct {
	objects   *storage.Reader[runtime.Object]
	clusters  *storage.Reader[*corev1alpha1.LogicalCluster]
	condition condition

	mu sync.Mutex
	// clusterStates are the states of logical clusters that affect their objects: a change triggers all of them. Zero
	// states are not stored.
	clusterStates map[logicalcluster.Name]clusterState
}

// clusterState is derived from the annotations of a logical cluster: whether its objects have global reach, whether
// it contains shared objects, and whether this shard has handed it over, or it arrives and is not open yet. An outdated one was handed over, and what
// this shard has of it is older than that.
type clusterState struct {
	global, sharing, outdated bool
	move                      movestate.State
}

// publishes reports whether this shard publishes the objects of a logical cluster. It returns ErrUnchanged if they stay as they are published.
func (s clusterState) publishes() (bool, error) {
	switch {
	case s.outdated, s.move == movestate.Arriving:
		return false, nil // another shard publishes them
	case s.move == movestate.MovedAway:
		return false, ErrUnchanged // until the destination has published them
	}
	return true, nil
}

func clusterStateOf(cluster metav1.Object) clusterState {
	annotations := cluster.GetAnnotations()
	_, outdated := annotations[corev1alpha1.OutdatedAnnotationKey]
	return clusterState{
		outdated: outdated, global: annotations[client.ReachAnnotation] == client.ReachGlobal, sharing: annotations[corev1alpha1.ReplicateAnnotationKey] != "",
		move: hiddenState(annotations),
	}
}

// hiddenState returns the state of a logical cluster that this shard does not serve. A pause of writes changes nothing that is published.
func hiddenState(annotations map[string]string) movestate.State {
	if state := movestate.Of(annotations); state.IsHidden() {
		return state
	}
	return movestate.Open
}

// publishedKeys maps an event to its object. Objects of system logical clusters are not replicated, except for Shards (isPublished).
func publishedKeys(event watch.Event) []controller.Request {
	keys := controller.RequestForObject(event)
	if _, isShard := event.Object.(*corev1alpha1.Shard); len(keys) == 0 || keys[0].ClusterName.IsSystem() && !isShard {
		return nil
	}
	return keys
}

// clusterKeys maps an event of a LogicalCluster to all objects in it, if its state has changed.
func (o *objectSource) clusterKeys(event watch.Event) []controller.Request {
	obj, err := meta.Accessor(event.Object)
	if err != nil {
		return nil
	}
	cluster, now := logicalcluster.Of(obj), clusterState{}
	if event.Type != watch.Deleted {
		now = clusterStateOf(obj)
	}
	now.sharing = now.sharing && o.condition == labelledWhereShared
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.clusterStates[cluster] == now {
		return nil
	}
	if o.clusterStates[cluster] = now; now == (clusterState{}) {
		delete(o.clusterStates, cluster)
	}
	return []controller.Request{{ClusterName: cluster}}
}

func (o *objectSource) list(ctx context.Context) ([]controller.Request, error) {
	objects, err := o.objects.List(ctx, "", nil)
	if err != nil {
		return nil, err
	}
	var keys []controller.Request
	for _, obj := range objects {
		keys = append(keys, publishedKeys(watch.Event{Type: watch.Added, Object: obj})...)
	}
	return keys, nil
}

func (o *objectSource) desired(ctx context.Context, key controller.Request) (runtime.Object, error) {
	obj, err := o.objects.Get(ctx, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	state, exists, err := o.stateOf(ctx, key.ClusterName)
	if err != nil || !exists { // the watch cache still has the object
		return nil, err
	}
	if publishes, err := state.publishes(); !publishes {
		return nil, err
	}
	if isReplicated, err := o.isReplicated(ctx, accessor); err != nil || !isReplicated {
		return nil, err
	}
	switch {
	case accessor.GetDeletionTimestamp() == nil:
		return obj, nil
	case len(accessor.GetFinalizers()) == 0:
		return nil, nil
	case o.condition == untilGone:
		return withoutDeletion(obj)
	}
	return nil, ErrUnchanged
}

// stateOf returns the state of a logical cluster, and whether it exists.
func (o *objectSource) stateOf(ctx context.Context, cluster logicalcluster.Name) (state clusterState, exists bool, err error) {
	if cluster.IsSystem() {
		return clusterState{}, true, nil
	}
	found, err := o.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) { // or the watch cache has the object before its logical cluster
		found, err = o.clusters.GetLatest(ctx, "", corev1alpha1.LogicalClusterName)
	}
	if apierrors.IsNotFound(err) {
		return clusterState{}, false, nil
	}
	if err != nil {
		return clusterState{}, false, err
	}
	return clusterStateOf(found), true, nil
}

// withoutDeletion returns a copy of an object that is being deleted, as it was before.
func withoutDeletion(obj runtime.Object) (runtime.Object, error) {
	copied := obj.DeepCopyObject()
	accessor, err := meta.Accessor(copied)
	if err != nil {
		return nil, err
	}
	accessor.SetDeletionTimestamp(nil)
	accessor.SetDeletionGracePeriodSeconds(nil)
	return copied, nil
}

// isReplicated returns whether an object in the logical cluster of the context meets the condition.
func (o *objectSource) isReplicated(ctx context.Context, obj metav1.Object) (bool, error) {
	if o.condition == always || o.condition == untilGone {
		return true, nil
	}
	annotations := obj.GetAnnotations()
	if o.condition == labelled && (annotations[corev1alpha1.MaxChildWorkspacesAnnotationKey] != "" || annotations[corev1alpha1.MaxDescendantWorkspacesAnnotationKey] != "") {
		return true, nil
	}
	if annotations[corev1alpha1.ReplicateAnnotationKey] == "" {
		return false, nil
	}
	if o.condition == labelled {
		return true, nil
	}
	cluster, err := o.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && clusterStateOf(cluster).sharing, err
}
