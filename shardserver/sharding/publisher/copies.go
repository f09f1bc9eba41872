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

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// condition says which objects of a resource travel.
type condition int

const (
	// always is all of them.
	always condition = iota
	// marked is those that package marks has marked.
	marked
	// ofSharing is the marked ones of logical clusters that are marked themselves, having something that others can use. An
	// administrator's binding is marked in every workspace, because it would let them bind exports; where there is none, no
	// other shard ever asks about it, and it must not cost anything there.
	ofSharing
)

// copied are the resources whose objects are published as they are.
var copied = map[schema.GroupResource]condition{
	apisv1alpha2.Resource("apiexports"):                                   always,
	apisv1alpha2.Resource("apiexportendpointslices"):                      always,
	apisv1alpha2.Resource("apiresourceschemas"):                           always,
	apisv1alpha2.Resource("apiconversions"):                               always,
	cachev1alpha1.Resource("clustercachedresources"):                      always,
	cachev1alpha1.Resource("clustercachedresourceendpointslices"):         always,
	corev1alpha1.Resource("shards"):                                       always,
	corev1alpha1.Resource("logicalclusters"):                              marked,
	tenancyv1alpha1.Resource("workspacetypes"):                            always,
	tenancyv1alpha1.Resource("workspaceauthenticationconfigurations"):     always,
	{Group: "migration.kcp.io", Resource: "logicalclustermigrations"}:     always,
	admission("mutatingwebhookconfigurations"):                            always,
	admission("validatingwebhookconfigurations"):                          always,
	admission("validatingadmissionpolicies"):                              always,
	admission("validatingadmissionpolicybindings"):                        always,
	admission("mutatingadmissionpolicies"):                                always,
	admission("mutatingadmissionpolicybindings"):                          always,
	{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}:        ofSharing,
	{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"}: ofSharing,
}

func admission(resource string) schema.GroupResource {
	return schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: resource}
}

// Copied returns the resources that this shard publishes copies of: those of the contract that it stores.
func Copied(registry *storage.Registry) []client.Resource {
	var all []client.Resource
	for gr := range copied {
		if resource, ok := client.Find(gr); ok && stored(registry, gr) {
			all = append(all, resource)
		}
	}
	return all
}

func stored(registry *storage.Registry, gr schema.GroupResource) bool {
	_, err := registry.Get(gr)
	return err == nil
}

// Copies returns the sources of Copied.
func Copies(registry *storage.Registry) []Source {
	var sources []Source
	for _, resource := range Copied(registry) {
		gr := resource.GroupResource()
		c := &copies{
			objects: storage.NewReader[runtime.Object](registry, gr), condition: copied[gr],
			clusters:   storage.NewReader[*corev1alpha1.LogicalCluster](registry, corev1alpha1.Resource("logicalclusters")),
			remarkable: map[logicalcluster.Name]standing{},
		}
		sources = append(sources, Source{
			Resource: gr,
			Inputs: []controller.Input{
				{Resource: gr, Keys: ofTenants},
				{Resource: corev1alpha1.Resource("logicalclusters"), Keys: c.ofCluster},
			},
			Wanted: c.wanted,
			List:   c.list,
		})
	}
	return sources
}

// copies are the copies of the objects of one resource.
type copies struct {
	objects   *storage.Reader[runtime.Object]
	clusters  *storage.Reader[*corev1alpha1.LogicalCluster]
	condition condition

	mu sync.Mutex
	// remarkable are the logical clusters whose own marks say something about what is in them: when these change, all of
	// it is looked at. One goes with its marks.
	remarkable map[logicalcluster.Name]standing
}

// standing is what the marks of a logical cluster say: its objects reach all regions; it has something to share.
type standing struct{ far, sharing bool }

func standingOf(cluster metav1.Object) standing {
	annotations := cluster.GetAnnotations()
	return standing{annotations[client.ReachAnnotation] == client.ReachGlobal, annotations[corev1alpha1.ReplicateAnnotationKey] != ""}
}

// ofTenants maps an event to its object. What belongs to the shard itself stays there.
func ofTenants(event watch.Event) []controller.Key {
	keys := controller.ObjectKey(event)
	if len(keys) == 0 || keys[0].Cluster.IsSystem() {
		return nil
	}
	return keys
}

// ofCluster maps an event of a LogicalCluster to all objects in it, if its marks have changed.
func (c *copies) ofCluster(event watch.Event) []controller.Key {
	obj, err := meta.Accessor(event.Object)
	if err != nil {
		return nil
	}
	cluster, now := logicalcluster.Of(obj), standing{}
	if event.Type != watch.Deleted {
		now = standingOf(obj)
	}
	now.sharing = now.sharing && c.condition == ofSharing
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.remarkable[cluster] == now {
		return nil
	}
	if c.remarkable[cluster] = now; now == (standing{}) {
		delete(c.remarkable, cluster)
	}
	return []controller.Key{{Cluster: cluster}}
}

func (c *copies) list(ctx context.Context) ([]controller.Key, error) {
	objects, err := c.objects.List(ctx, "", nil)
	if err != nil {
		return nil, err
	}
	var keys []controller.Key
	for _, obj := range objects {
		keys = append(keys, ofTenants(watch.Event{Type: watch.Added, Object: obj})...)
	}
	return keys, nil
}

func (c *copies) wanted(ctx context.Context, key controller.Key) (runtime.Object, error) {
	obj, err := c.objects.Get(ctx, key.Namespace, key.Name)
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
	if travels, err := c.travels(ctx, accessor); err != nil || !travels {
		return nil, err
	}
	switch {
	case accessor.GetDeletionTimestamp() == nil:
		return obj, nil
	case len(accessor.GetFinalizers()) == 0:
		return nil, nil
	}
	return nil, ErrUnchanged
}

// travels tells whether an object of the context's logical cluster fulfills the condition.
func (c *copies) travels(ctx context.Context, obj metav1.Object) (bool, error) {
	if c.condition == always {
		return true, nil
	}
	if obj.GetAnnotations()[corev1alpha1.ReplicateAnnotationKey] == "" {
		return false, nil
	}
	if c.condition == marked {
		return true, nil
	}
	cluster, err := c.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && standingOf(cluster).sharing, err
}
