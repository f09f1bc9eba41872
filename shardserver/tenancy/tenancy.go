// Package tenancy has the controllers of workspaces: they schedule a Workspace, create and initialize its
// LogicalCluster, synchronize the status of both, and delete the content of a logical cluster that is being deleted.
//
// Each shard runs one of each for all logical clusters. They read the watch cache and write through the shard's own
// API. Admission and authorization of users do not belong here; workspace types are resolved by package
// workspacetype, and what shards publish for each other is read and derived by package remote.
package tenancy

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/lifecycle"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/content"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	"github.com/atoll-dev/atoll/shardserver/sharding/publisher"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/defaultbindings"
	"github.com/atoll-dev/atoll/shardserver/tenancy/remote"
	"github.com/atoll-dev/atoll/shardserver/tenancy/scheduling"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

var (
	logicalClusters              = corev1alpha1.Resource("logicalclusters")
	shards                       = corev1alpha1.Resource("shards")
	requests                     = shardingv1alpha1.Resource("logicalclusterrequests")
	reports                      = shardingv1alpha1.Resource("logicalclusterreports")
	shardReports                 = shardingv1alpha1.Resource("shardreports")
	workspaces                   = tenancyv1alpha1.Resource("workspaces")
	workspaceTypes               = tenancyv1alpha1.Resource("workspacetypes")
	authenticationConfigurations = tenancyv1alpha1.Resource("workspaceauthenticationconfigurations")
	apiExports                   = apisv1alpha2.Resource("apiexports")
	apiBindings                  = apisv1alpha2.Resource("apibindings")
	namespaces                   = schema.GroupResource{Resource: "namespaces"}
	clusterRoles                 = schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}
	clusterRoleBindings          = schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"}
)

// workers is the number of workers of the workspace and logical cluster controllers, which mostly wait for etcd.
const workers = 24

// Config holds the dependencies of the controllers.
type Config struct {
	Registry *storage.Registry
	// Clients are loopback clients, as a member of system:masters.
	Clients *loopback.Clients
	// Types resolves workspace types and paths.
	Types *workspacetype.Resolver
	// Defaults creates the default APIBindings of workspace types.
	Defaults *defaultbindings.Binder
	// NamespaceDefaults are the objects that each namespace has.
	NamespaceDefaults lifecycle.NamespaceDefaults
	// Placer places new workspaces when they are created.
	Placer *Placer
	// ShardName is the name of this shard's Shard object in root.
	ShardName string
	// Health returns the health of this shard, Heartbeats that of the others.
	Health     Health
	Heartbeats scheduling.HeartbeatTracker
	// Held reports whether this shard is restored and not released.
	Held func() bool
	// Mounts enables workspace mounts.
	Mounts bool
	// Keys counts the keys of a logical cluster in etcd.
	Keys content.KeyCounter
	// PurgeOrphans deletes the keys of the context's logical cluster in storages that are not served, and returns their
	// number. It fails if the logical cluster has been deleted since it was read. It may be nil.
	PurgeOrphans func(context.Context, *corev1alpha1.LogicalCluster) (int, error)
	// DeleteKeys deletes objects of the context's logical cluster without requests, and returns which ones. It fails as PurgeOrphans
	// does. It may be nil.
	DeleteKeys func(context.Context, *corev1alpha1.LogicalCluster, []storage.Deletion) ([]bool, error)
	// AuditDeletion adds the deletion of an object of the context's logical cluster to the audit log. It may be nil.
	AuditDeletion func(ctx context.Context, resource schema.GroupVersionResource, namespace, name string)
	// Deleted is called after a logical cluster was deleted. It may be nil.
	Deleted func(logicalcluster.Name)
}

// Controllers returns the controllers of this package.
func Controllers(cfg Config) []controller.Controller {
	return []controller.Controller{
		newWorkspaceController(cfg),
		newLogicalClusterController(cfg),
		remote.NewRequestController(cfg.remote()),
		newWorkspaceTypeController(cfg),
		newConfigurationController(cfg),
	}
}

// PublishedSources returns the sources of objects that this shard publishes: its requests to other shards, and its
// reports on their requests.
func PublishedSources(cfg Config) []publisher.Source { return remote.PublishedSources(cfg.remote()) }

// remote configures the placement of workspaces on other shards, and of theirs on this one.
func (c Config) remote() remote.Config {
	return remote.Config{
		Registry:  c.Registry,
		Client:    c.Clients.Typed,
		Types:     c.Types,
		Defaults:  c.Defaults,
		ShardName: c.ShardName,
		Full:      c.Health.Full,
		Held:      c.Held,
		Workers:   workers,
		Template: func(ctx context.Context, parent logicalcluster.Name, workspace *tenancyv1alpha1.Workspace) (*corev1alpha1.LogicalCluster, error) {
			cluster, _, err := newLogicalCluster(ctx, c.Types, parent, workspace, workspace.Annotations[corev1alpha1.ShardAnnotationKey])
			return cluster, err
		},
		Delete: func(ctx context.Context, cluster *corev1alpha1.LogicalCluster) error {
			return deleteCluster(ctx, c.Clients.Typed, cluster)
		},
	}
}

// Health returns the health of this shard (package heartbeat).
type Health interface {
	// Current returns the capacity, load and conditions of this shard.
	Current(ctx context.Context) (shardingv1alpha1.ShardReportSpec, error)
	// Full returns the reason why the shard accepts no new logical clusters, or "".
	Full() string
}

// shardByName returns the shard of that name, or nil.
func shardByName(all []*corev1alpha1.Shard, name string) *corev1alpha1.Shard {
	for _, shard := range all {
		if shard.Name == name {
			return shard
		}
	}
	return nil
}

// mapToAll returns a MapFunc that maps every event to all objects of another resource in all logical clusters. It is
// for rare events, such as a change of a shard's URL.
func mapToAll[T client.Object](reader *storage.Reader[T], matches func(watch.Event) bool) func(watch.Event) []controller.Request {
	return func(event watch.Event) []controller.Request {
		if !matches(event) {
			return nil
		}
		return controller.RequestsForObjects(reader, logicalcluster.Wildcard, nil)
	}
}

// mapDeletionToCluster maps the deletion of an object to the LogicalCluster that contains it.
func mapDeletionToCluster(event watch.Event) []controller.Request {
	if event.Type != watch.Deleted {
		return nil
	}
	keys := controller.RequestForObject(event)
	for i := range keys {
		keys[i] = controller.Request{ClusterName: keys[i].ClusterName, Name: corev1alpha1.LogicalClusterName}
	}
	return keys
}
