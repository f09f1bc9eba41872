package sharding_test

import (
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

var (
	widgets    = schema.GroupVersionResource{Group: "example.io", Version: "v1", Resource: "widgets"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// env is a provider on shard alpha whose API is consumed on shard beta. root is on a third shard, with the cache.
type env struct {
	shards                            map[string]*shardtesting.Shard
	provider, consumer, otherConsumer string // logical clusters; otherConsumer is on beta, too
}

// TestExportAcrossShards runs its steps in order: each depends on the state that the previous one leaves.
func TestExportAcrossShards(t *testing.T) {
	s := newEnv(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *env)
	}{
		{"an export of another shard is bound by path", testBindByPath},
		{"the endpoint slice lists the shards with consumers", testEndpointSliceShards},
		{"the virtual workspace on the consumer's shard", testVirtualWorkspaceOnConsumerShard},
		{"an accepted claim", testClaimAccepted},
		{"the maximal permission policy of another shard", testRemoteMaximalPermissionPolicy},
		{"an admission policy of the provider on another shard", testRemoteAdmissionPolicy},
		{"a workspace type with default bindings of another shard", testRemoteWorkspaceType},
		{"the initializer of a type of another shard", testRemoteInitializer},
		{"partitions of all shards, and slices with them", testPartitions},
		{"the permission to bind is revoked", testBindPermissionRevoked},
		{"a service account of the provider on the consumer's shard", testRemoteServiceAccount},
		{"a default binding to an export of another shard", testRemoteDefaultBinding},
		{"tokens, scope and successors with an export of another shard", testRemoteTools},
		{"the provider's shard is down", testProviderShardDown},
		{"root and the cache are down", testCacheDown},
		{"a deleted export stays bound", testExportDeletion},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.run(t, s) }) {
			return
		}
	}
}

func newEnv(t *testing.T) *env {
	root := shardtesting.Start(t)
	alpha := shardtesting.StartShard(t, root, "alpha")
	beta := shardtesting.StartShard(t, root, "beta", withTrustedShard(t, alpha))
	s := &env{shards: map[string]*shardtesting.Shard{"root": root, "alpha": alpha, "beta": beta}}
	masters := root.Client(t, root.Masters(t))
	root.WaitShards(t, "alpha", "beta")
	s.provider = shardtesting.NewWorkspace(t, masters, "root", "provider", shardtesting.OnShard("alpha")).Spec.Cluster
	s.consumer = shardtesting.NewWorkspace(t, masters, "root", "consumer", shardtesting.OnShard("beta")).Spec.Cluster
	s.otherConsumer = shardtesting.NewWorkspace(t, masters, "root", "another", shardtesting.OnShard("beta")).Spec.Cluster
	shardtesting.NewExport(t, s.masters(t, "alpha"), s.provider, "widgets", widgets.GroupResource(), "Widget", func(export *apisv1alpha2.APIExport) {
		export.Spec.PermissionClaims = []apisv1alpha2.PermissionClaim{{
			GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"*"},
		}}
	})
	for _, cluster := range []string{s.consumer, s.otherConsumer} {
		s.grant(t, "beta", cluster, "alice-rules", "cluster-admin", "alice")
	}
	return s
}

// withTrustedShard makes a shard accept service accounts of another shard, which it authenticates there as through a
// front proxy.
func withTrustedShard(t *testing.T, other *shardtesting.Shard) func(*options.Options) {
	proxy := other.PeerKubeconfig(t)
	return func(o *options.Options) {
		o.Shard.ExternalLogicalClusterAdminKubeconfig = proxy
		o.RemoteServiceAccountKeyFiles = []string{filepath.Join(other.Directory, "sa.key")}
	}
}
