package replica

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	adminv1alpha1 "github.com/atoll-dev/atoll/api/admin/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
)

var (
	shardReports           = shardingv1alpha1.Resource("shardreports")
	logicalClusterRequests = shardingv1alpha1.Resource("logicalclusterrequests")
	logicalClusterReports  = shardingv1alpha1.Resource("logicalclusterreports")
	exportConsumers        = shardingv1alpha1.Resource("exportconsumers")
	migrations             = migrationv1alpha1.Resource("logicalclustermigrations")
	migrationReports       = shardingv1alpha1.Resource("logicalclustermigrationreports")
	workspaceCounts        = shardingv1alpha1.Resource("workspacecounts")
	claimPolicies          = adminv1alpha1.Resource("permissionclaimpolicies")
	shards                 = corev1alpha1.Resource("shards")
)

// nameLabel is the label by which workspaces select one shard.
const nameLabel = "name"

// trusts is the trust policy: it returns whether a shard may publish an object. Only the root shard may publish in the
// logical cluster root, including the list of shards and the policies of permission claims; other shards publish only their own
// report, ExportConsumers, WorkspaceCounts and reports on migrations there. A migration makes a shard hand over a logical cluster with all its Secrets, so
// those of the root shard alone count: another shard could name itself as the destination. Each shard publishes one Shard in system:shard, its own, which is not
// selected by the name of another. No object outside root may have the path of root, by which all users resolve exports and workspace types of
// root.
func (inf *Informer) trusts(resource schema.GroupResource, object *client.Object) bool {
	key, inRoot := object.Key, object.Cluster == logicalcluster.Root
	switch {
	case resource == shards && key.Cluster == logicalcluster.Shard:
		return key.Name == key.Shard && object.Meta.Labels[nameLabel] == key.Name
	case key.Cluster.IsSystem():
		return false
	case resource == shardReports:
		return inRoot && key.Name == key.Shard
	case resource == exportConsumers, resource == migrationReports, resource == workspaceCounts:
		return true
	case resource == migrations:
		return key.Shard == inf.cfg.Root
	case inRoot, resource == shards, resource == claimPolicies:
		return inRoot && key.Shard == inf.cfg.Root
	}
	return object.Meta.Annotations[logicalcluster.PathAnnotationKey] != logicalcluster.Root.String()
}
