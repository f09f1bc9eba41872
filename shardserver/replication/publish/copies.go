package publish

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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

// copied are the resources whose objects are published as they are. The value tells whether only those travel that
// package marks has marked.
var copied = map[schema.GroupResource]bool{
	apisv1alpha2.Resource("apiexports"):                                   false,
	apisv1alpha2.Resource("apiexportendpointslices"):                      false,
	apisv1alpha2.Resource("apiresourceschemas"):                           false,
	apisv1alpha2.Resource("apiconversions"):                               false,
	cachev1alpha1.Resource("clustercachedresources"):                      false,
	cachev1alpha1.Resource("clustercachedresourceendpointslices"):         false,
	corev1alpha1.Resource("shards"):                                       false,
	corev1alpha1.Resource("logicalclusters"):                              true,
	tenancyv1alpha1.Resource("workspacetypes"):                            false,
	tenancyv1alpha1.Resource("workspaceauthenticationconfigurations"):     false,
	{Group: "migration.kcp.io", Resource: "logicalclustermigrations"}:     false,
	admission("mutatingwebhookconfigurations"):                            false,
	admission("validatingwebhookconfigurations"):                          false,
	admission("validatingadmissionpolicies"):                              false,
	admission("validatingadmissionpolicybindings"):                        false,
	admission("mutatingadmissionpolicies"):                                false,
	admission("mutatingadmissionpolicybindings"):                          false,
	{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}:        true,
	{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"}: true,
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
		c := &copies{objects: storage.NewReader[runtime.Object](registry, gr), marked: copied[gr], far: map[logicalcluster.Name]struct{}{}}
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
	objects *storage.Reader[runtime.Object]
	// marked says that only marked objects travel.
	marked bool

	mu sync.Mutex
	// far are the logical clusters that carry the mark of global reach: when one gets or loses it, its objects do, too.
	far map[logicalcluster.Name]struct{}
}

// ofTenants maps an event to its object. What belongs to the shard itself stays there.
func ofTenants(event watch.Event) []controller.Key {
	keys := controller.ObjectKey(event)
	if len(keys) == 0 || keys[0].Cluster.IsSystem() {
		return nil
	}
	return keys
}

// ofCluster maps an event of a LogicalCluster to all objects in it, if these are to reach farther or less far than before.
func (c *copies) ofCluster(event watch.Event) []controller.Key {
	obj, err := meta.Accessor(event.Object)
	if err != nil {
		return nil
	}
	cluster := logicalcluster.Of(obj)
	far := event.Type != watch.Deleted && obj.GetAnnotations()[client.ReachAnnotation] == client.ReachGlobal
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, before := c.far[cluster]; far == before {
		return nil
	}
	if far {
		c.far[cluster] = struct{}{}
	} else {
		delete(c.far, cluster)
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
	switch {
	case c.marked && accessor.GetAnnotations()[corev1alpha1.ReplicateAnnotationKey] == "":
		return nil, nil
	case accessor.GetDeletionTimestamp() == nil:
		return obj, nil
	case len(accessor.GetFinalizers()) == 0:
		return nil, nil
	}
	return nil, ErrUnchanged
}
