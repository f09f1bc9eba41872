package apiindex_test

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
	provider, consumer, otherConsumer string // logical clusters; another is one more on beta
}

// TestExportAcrossShards is one story: each part goes on from where the one before left things.
func TestExportAcrossShards(t *testing.T) {
	s := newEnv(t)
	for _, part := range []struct {
		name string
		tell func(*testing.T, *env)
	}{
		{"who may bind there binds an export of another shard by its path", testBindByPath},
		{"the slice of the provider lists the shards with consumers", testEndpointSliceShards},
		{"the view on the consumer's shard is for who may act for the provider", testVirtualWorkspaceOnConsumerShard},
		{"a claim is accepted, and shows what it covers", testClaimAccepted},
		{"the maximal permission policy of another shard bounds consumers", testRemoteMaximalPermissionPolicy},
		{"a policy of the provider judges objects on another shard", testRemoteAdmissionPolicy},
		{"a workspace gets the type and the default bindings that another shard has", testRemoteWorkspaceType},
		{"who initializes a type of another shard finds and finishes its workspaces", testRemoteInitializer},
		{"partitions are over all shards, and slices follow them", testPartitions},
		{"who may no longer bind does not", testBindPermissionRevoked},
		{"a service account of the provider works on the consumer's shard", testRemoteServiceAccount},
		{"an export of another shard becomes a default for who may bind it", testRemoteDefaultBinding},
		{"while the provider's shard is away, consumers go on", testProviderShardDown},
		{"while root and the cache are away, consumers go on", testCacheDown},
		{"an export that was deleted stays bound", testExportDeletion},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.tell(t, s) }) {
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

// withTrustedShard makes a shard accept service accounts of another one, which it asks for them as it would a front proxy.
func withTrustedShard(t *testing.T, other *shardtesting.Shard) func(*options.Options) {
	proxy := other.PeerKubeconfig(t)
	return func(o *options.Options) {
		o.Shard.ExternalLogicalClusterAdminKubeconfig = proxy
		o.Authentication.ServiceAccounts.KeyFiles = []string{filepath.Join(o.RootDirectory, "sa.key"), filepath.Join(other.Directory, "sa.key")}
	}
}
