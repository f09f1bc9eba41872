// Package tenancy holds the controllers of workspaces: they place a Workspace, make and prepare its LogicalCluster,
// keep both in step, and empty a logical cluster that is being deleted until no key of it is left.
//
// There is one of each per shard, for all logical clusters. They read the watch cache and write through the shard's own
// API. What users may do is decided by admission and authorization, not here; what a type means is in the package
// workspacetype.
package tenancy

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/content"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/defaultbindings"
	"github.com/atoll-dev/atoll/shardserver/tenancy/scheduling"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

var (
	logicalClusters     = corev1alpha1.Resource("logicalclusters")
	shards              = corev1alpha1.Resource("shards")
	requests            = shardingv1alpha1.Resource("logicalclusterrequests")
	reports             = shardingv1alpha1.Resource("logicalclusterreports")
	shardReports        = shardingv1alpha1.Resource("shardreports")
	workspaces          = tenancyv1alpha1.Resource("workspaces")
	workspaceTypes      = tenancyv1alpha1.Resource("workspacetypes")
	apiExports          = apisv1alpha2.Resource("apiexports")
	apiBindings         = apisv1alpha2.Resource("apibindings")
	namespaces          = schema.GroupResource{Resource: "namespaces"}
	clusterRoles        = schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}
	clusterRoleBindings = schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"}
)

// workers is how many objects each of the two big controllers works on at once. They mostly wait for etcd.
const workers = 24

// Config is what the controllers need.
type Config struct {
	Registry *storage.Registry
	// Clients write through the shard's own API, as a member of system:masters.
	Clients *loopback.Clients
	// Types resolves workspace types and paths.
	Types *workspacetype.Resolver
	// Defaults makes the bindings that types ask for.
	Defaults *defaultbindings.Binder
	// ShardName is the name of this shard's Shard object in root.
	ShardName string
	// Health says how this shard is, Beats how others are.
	Health Health
	Beats  scheduling.Beats
	// Mounts makes workspaces that stand for servers elsewhere lead there.
	Mounts bool
	// Keys tells what storage has of a logical cluster.
	Keys content.Keys
	// Leftovers deletes what is left of the context's logical cluster in storages that it no longer serves, and returns
	// how many objects that was. Nil leaves them.
	Leftovers func(context.Context) (int, error)
}

// Controllers returns the controllers of this package.
func Controllers(cfg Config) []controller.Controller {
	return []controller.Controller{
		newWorkspaceController(cfg),
		newLogicalClusterController(cfg),
		newRequestController(cfg),
		newWorkspaceTypeController(cfg),
	}
}

// Health is what a shard knows of itself (package health).
type Health interface {
	// Current returns capacity, load and conditions as this shard reports them. What could not be measured now is missing.
	Current(ctx context.Context) (shardingv1alpha1.ShardReportSpec, error)
	// Full returns why the shard takes no new logical clusters; nothing if it does.
	Full() string
}

// shardReader reads the Shard objects, which live in root.
type shardReader struct {
	reader *storage.Reader[*corev1alpha1.Shard]
}

func newShardReader(registry *storage.Registry) shardReader {
	return shardReader{storage.NewReader[*corev1alpha1.Shard](registry, shards).Everywhere()}
}

func (r shardReader) list(ctx context.Context) ([]*corev1alpha1.Shard, error) {
	return r.reader.List(logicalcluster.With(ctx, logicalcluster.Root), "", nil)
}

// named returns the shard of that name, or nil.
func named(all []*corev1alpha1.Shard, name string) *corev1alpha1.Shard {
	for _, shard := range all {
		if shard.Name == name {
			return shard
		}
	}
	return nil
}

// keysOfAll returns an Input.Keys that answers every event with all objects of another resource in all logical
// clusters. It is for events that are as rare as a change of a shard's URL.
func keysOfAll[T interface {
	runtime.Object
	client.Object
}](reader *storage.Reader[T], matches func(watch.Event) bool) func(watch.Event) []controller.Key {
	return func(event watch.Event) []controller.Key {
		if !matches(event) {
			return nil
		}
		return keysIn(reader, logicalcluster.Wildcard)
	}
}

// keysIn returns the keys of all cluster-scoped objects in a logical cluster, or in all for the wildcard.
func keysIn[T client.Object](reader *storage.Reader[T], cluster logicalcluster.Name) []controller.Key {
	objects, err := reader.List(logicalcluster.With(context.Background(), cluster), "", nil)
	if err != nil {
		klog.ErrorS(err, "Listing what an event concerns", "resource", reader.Resource(), "cluster", cluster)
		return nil
	}
	keys := make([]controller.Key, 0, len(objects))
	for _, obj := range objects {
		keys = append(keys, controller.Key{Cluster: logicalcluster.Of(obj), Name: obj.GetName()})
	}
	return keys
}

// ownCluster maps the deletion of an object to the LogicalCluster that contains it.
func ownCluster(event watch.Event) []controller.Key {
	if event.Type != watch.Deleted {
		return nil
	}
	keys := controller.ObjectKey(event)
	for i := range keys {
		keys[i] = controller.Key{Cluster: keys[i].Cluster, Name: corev1alpha1.LogicalClusterName}
	}
	return keys
}
