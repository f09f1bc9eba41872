// Package remote has the parts of the controllers of workspaces that concern two shards: it derives what the shard of a
// workspace requests of the shard of its logical cluster and what that one reports, reads both, and processes requests.
// The protocol is in package placement. The controllers of package tenancy decide what a report means for a workspace,
// and write it.
package remote

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/defaultbindings"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

var (
	logicalClusters = corev1alpha1.Resource("logicalclusters")
	requests        = shardingv1alpha1.Resource("logicalclusterrequests")
	reports         = shardingv1alpha1.Resource("logicalclusterreports")
	workspaces      = tenancyv1alpha1.Resource("workspaces")
	migrations      = migrationv1alpha1.Resource("logicalclustermigrations")
)

// Config holds the dependencies of this package.
type Config struct {
	Registry *storage.Registry
	// Client is a loopback client, as a member of system:masters.
	Client client.Client
	// Types resolves workspace types.
	Types *workspacetype.Resolver
	// Defaults reserves the resources of the default APIBindings of workspace types.
	Defaults *defaultbindings.Binder
	// ShardName is the name of this shard.
	ShardName string
	// Full returns the reason why this shard accepts no new logical clusters, or "".
	Full func() string
	// Held reports whether this shard is restored and not released (package restoremark).
	Held func() bool
	// Workers is the number of workers of the controller.
	Workers int
	// Template returns the desired LogicalCluster of a workspace of this shard.
	Template func(ctx context.Context, parent logicalcluster.Name, workspace *tenancyv1alpha1.Workspace) (*corev1alpha1.LogicalCluster, error)
	// Delete deletes a LogicalCluster of this shard, unless it is being deleted.
	Delete func(context.Context, *corev1alpha1.LogicalCluster) error
}
