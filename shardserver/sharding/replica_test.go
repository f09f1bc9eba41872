package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/rbac"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	cacheoptions "github.com/atoll-dev/atoll/cacheserver/options"
	cachetesting "github.com/atoll-dev/atoll/cacheserver/testing"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/etcdkeys"
	"github.com/atoll-dev/atoll/shardserver/options"
	"github.com/atoll-dev/atoll/shardserver/storage"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// withCache configures the cache server of a shard.
func withCache(t *testing.T, cache *cachetesting.Cache, shard string) func(*options.Options) {
	t.Helper()
	kubeconfig := cache.Kubeconfig(t, cache.Shard(t, shard))
	return func(o *options.Options) { o.Shard.CacheKubeconfig = kubeconfig }
}

// TestReplication replicates objects between shards.
func TestReplication(t *testing.T) {
	cache := cachetesting.Start(t)
	root := shardtesting.Start(t, withCache(t, cache, "root"))
	beta := shardtesting.StartShard(t, root, "beta", withCache(t, cache, "beta"))
	atRoot := root.Client(t, root.Masters(t))
	types := storage.NewReader[*tenancyv1alpha1.WorkspaceType](beta.Server.Registry, tenancyv1alpha1.Resource("workspacetypes"))
	roles := storage.NewReader[*rbac.ClusterRole](beta.Server.Registry, rbac.Resource("clusterroles"))
	global := types.Global()

	t.Run("existing objects of root arrive in the type of local readers", func(t *testing.T) {
		shardtesting.Eventually(t, "the type universal", func(ctx context.Context) error {
			obj, err := global.Get(in(ctx, "root"), "", "universal")
			if err != nil {
				return err
			}
			if obj.Annotations["kcp.io/shard"] != "root" || logicalcluster.Of(obj) != logicalcluster.Root || obj.UID == "" {
				return fmt.Errorf("got annotations %v, UID %q", obj.Annotations, obj.UID)
			}
			return nil
		})
		if _, err := types.Get(in(t.Context(), "root"), "", "universal"); !apierrors.IsNotFound(err) {
			t.Errorf("a reader of local objects returned: %v", err)
		}
	})
	t.Run("missing objects are NotFound once all shards are complete", func(t *testing.T) {
		shardtesting.Eventually(t, "a NotFound", func(ctx context.Context) error {
			if _, err := global.Get(in(ctx, "root"), "", "nonsense"); !apierrors.IsNotFound(err) {
				return fmt.Errorf("got %v", err)
			}
			return nil
		})
	})
	t.Run("a role with the replicate label arrives in the internal type, and is deleted without the label", func(t *testing.T) {
		role := &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "binders"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"apis.kcp.io"}, Resources: []string{"apiexports"}, Verbs: []string{"bind"}}},
		}
		must(t, atRoot.Create(shardtesting.In(t.Context(), "root"), role))
		shardtesting.Eventually(t, "the role", func(ctx context.Context) error {
			_, err := roles.Global().Get(in(ctx, "root"), "", "binders")
			return err
		})
		before := role.DeepCopy()
		role.Rules[0].Verbs = []string{"get"}
		must(t, atRoot.Patch(shardtesting.In(t.Context(), "root"), role, client.MergeFrom(before)))
		shardtesting.Eventually(t, "the deletion of the role", func(ctx context.Context) error {
			if _, err := roles.Global().Get(in(ctx, "root"), "", "binders"); !apierrors.IsNotFound(err) {
				return fmt.Errorf("got %v", err)
			}
			return nil
		})
	})
}

// TestUnavailableCache: shards start and serve from their snapshot without the cache, and publish again what it has
// lost.
func TestUnavailableCache(t *testing.T) {
	var delay time.Duration
	cache := cachetesting.Start(t, func(o *cacheoptions.Options) { o.SyntheticDelay = delay })
	root := shardtesting.Start(t, withCache(t, cache, "root"))
	join := root.Peer(t, "beta")
	beta := shardtesting.StartShard(t, root, "beta", withCache(t, cache, "beta"))
	atRoot := root.Client(t, root.Masters(t))
	eventuallyGetType(t, beta, "universal")
	createType(t, atRoot, "before")
	eventuallyGetType(t, beta, "before")
	eventuallyInSnapshot(t, beta, "before")

	must(t, cache.Stop())
	must(t, beta.Stop())
	createType(t, atRoot, "meanwhile")
	beta = shardtesting.StartIn(t, beta.Directory, join, withCache(t, cache, "beta"))
	if err := getType(beta, "before")(t.Context()); err != nil {
		t.Errorf("after a restart without the cache: %v", err)
	}
	if err := getType(beta, "meanwhile")(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("the snapshot is synced; got %v", err)
	}
	gamma := shardtesting.StartShard(t, root, "gamma", withCache(t, cache, "gamma"))
	if err := getType(gamma, "before")(t.Context()); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a shard without a snapshot is not synced; got %v", err)
	}

	must(t, os.RemoveAll(filepath.Join(cache.Directory, "root")))
	delay = 300 * time.Millisecond
	cache.Restart(t)
	for _, shard := range []*shardtesting.Shard{beta, gamma} {
		for _, name := range []string{"before", "meanwhile"} {
			eventuallyGetType(t, shard, name)
		}
	}
	shardtesting.Eventually(t, "gamma to be synced", func(ctx context.Context) error {
		if err := getType(gamma, "nonsense")(ctx); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

// getType returns nil if a shard has a type of root.
func getType(shard *shardtesting.Shard, name string) func(context.Context) error {
	reader := storage.NewReader[*tenancyv1alpha1.WorkspaceType](shard.Server.Registry, tenancyv1alpha1.Resource("workspacetypes")).Global()
	return func(ctx context.Context) error {
		_, err := reader.Get(in(ctx, "root"), "", name)
		return err
	}
}

func eventuallyGetType(t *testing.T, shard *shardtesting.Shard, name string) {
	t.Helper()
	shardtesting.Eventually(t, name, getType(shard, name))
}

// eventuallyInSnapshot waits until the snapshot of a shard has a type of root and is synced.
func eventuallyInSnapshot(t *testing.T, shard *shardtesting.Shard, name string) {
	t.Helper()
	etcd, err := etcdkeys.Connect(shard.Server.StorageTransport())
	must(t, err)
	defer func() { must(t, etcd.Close()) }()
	shardtesting.Eventually(t, "the snapshot in etcd", func(ctx context.Context) error {
		const prefix = "/registry/~elsewhere/tenancy.kcp.io/workspacetypes/"
		for _, key := range []string{prefix + "root/root/-/" + name, prefix + "known"} {
			if found, err := etcd.Get(ctx, key); err != nil || found.Count != 1 {
				return fmt.Errorf("%s: %v, %w", key, found, err)
			}
		}
		return nil
	})
}

// TestEmbeddedCache: a shard reads and writes the cache that it embeds as any other.
func TestEmbeddedCache(t *testing.T) {
	root := shardtesting.Start(t)
	beta := shardtesting.StartShard(t, root, "beta")
	types := storage.NewReader[*tenancyv1alpha1.WorkspaceType](beta.Server.Registry, tenancyv1alpha1.Resource("workspacetypes")).Global()
	shardtesting.Eventually(t, "the types of root, and only these", func(ctx context.Context) error {
		if _, err := types.Get(in(ctx, "root"), "", "nonsense"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %v", err)
		}
		_, err := types.Get(in(ctx, "root"), "", "universal")
		return err
	})
	shardtesting.Eventually(t, "root to receive the report of beta", func(context.Context) error {
		if err := root.Server.Registry.RemoteStore().CheckSynced(tenancyv1alpha1.Resource("workspacetypes")); err != nil {
			return err
		}
		if _, found := root.Server.Registry.RemoteStore().Get(shardingv1alpha1.Resource("shardreports"), logicalcluster.Root, "", "beta"); !found {
			return errors.New("there is no report")
		}
		return nil
	})
}
