package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	cacheclient "github.com/atoll-dev/atoll/cacheserver/client"
	cachetesting "github.com/atoll-dev/atoll/cacheserver/testing"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/options"
	"github.com/atoll-dev/atoll/shardserver/storage"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestResyncDuringWrites: an emptied cache becomes complete again, and a new shard synced, while shared objects
// change constantly.
func TestResyncDuringWrites(t *testing.T) {
	cache := cachetesting.Start(t)
	withCache := func(shard string) func(*options.Options) {
		kubeconfig := cache.Kubeconfig(t, cache.Shard(t, shard))
		return func(o *options.Options) { o.Shard.CacheKubeconfig = kubeconfig }
	}
	root := shardtesting.Start(t, withCache("root"))
	workspace := root.NewWorkspace(t, "root", "restless").Spec.Cluster
	writer := root.Client(t, root.Masters(t))

	ctx, cancel := context.WithCancel(shardtesting.In(t.Context(), workspace))
	var writing sync.WaitGroup
	defer writing.Wait()
	defer cancel()
	for i := range 4 {
		obj := &tenancyv1alpha1.WorkspaceType{}
		obj.Name = fmt.Sprintf("restless-%d", i)
		must(t, writer.Create(ctx, obj.DeepCopy()))
		writing.Go(func() {
			for state := 0; ctx.Err() == nil; state++ {
				patch := fmt.Sprintf(`{"metadata":{"labels":{"state":"%d"}}}`, state)
				if err := writer.Patch(ctx, obj.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil && ctx.Err() == nil {
					t.Errorf("the tenant cannot write: %v", err)
					return
				}
			}
		})
	}

	must(t, cache.Stop())
	must(t, os.RemoveAll(filepath.Join(cache.Directory, "root")))
	cache.Restart(t)
	reader := cache.Client(t, "root")
	reports, _ := cacheclient.FindResource(shardingv1alpha1.Resource("shardreports"))
	shardtesting.Eventually(t, "a complete report", func(ctx context.Context) error {
		object, err := reader.Get(ctx, reports.GroupVersionResource, cacheclient.Key{Shard: "root", Cluster: logicalcluster.Root, Name: "root"})
		if err != nil {
			return err
		}
		var report shardingv1alpha1.ShardReport
		if err := object.Decode(&report); err != nil || !report.Spec.Complete {
			return errors.Join(errors.New("the report is not complete"), err)
		}
		return nil
	})
	kinds, _ := cacheclient.FindResource(tenancyv1alpha1.Resource("workspacetypes"))
	for i := range 4 {
		key := cacheclient.Key{Shard: "root", Cluster: logicalcluster.MustParseName(workspace), Name: fmt.Sprintf("restless-%d", i)}
		_, err := reader.Get(t.Context(), kinds.GroupVersionResource, key)
		must(t, err)
	}

	beta := shardtesting.StartShard(t, root, "beta", withCache("beta"))
	known := storage.NewReader[*tenancyv1alpha1.WorkspaceType](beta.Server.Registry, tenancyv1alpha1.Resource("workspacetypes")).Global()
	shardtesting.Eventually(t, "a new shard to be synced", func(ctx context.Context) error {
		if _, err := known.Get(in(ctx, "root"), "", "nonsense"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	if ctx.Err() != nil {
		t.Error("the tenant has stopped")
	}
}
