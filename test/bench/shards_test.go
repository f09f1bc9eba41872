package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	cacheclient "github.com/atoll-dev/atoll/cacheserver/client"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// shardInstance is a shard of an installation, with an etcd of its own.
type shardInstance struct {
	name  string
	shard *shardtesting.Shard
	etcd  *etcdServer
}

// BenchmarkShardedWorkspaces measures the creation of workspaces below root, each placed on one of three shards,
// with its cost there and in the cache, against workspaces that stay on the shard of their parent.
func BenchmarkShardedWorkspaces(b *testing.B) {
	recordDuration(b)
	for range b.N {
		members := startShards(b, "alpha", "beta")
		root := members[0]
		creator := newCreator(b, root.shard, "root")
		creator.create(b, "warm", 30)
		for _, run := range []struct {
			name, what string
			open       []string
		}{
			{"local", "on the shard of their parent", []string{"root"}},
			{"remote", "all on two other shards", []string{"alpha", "beta"}},
			{"distributed", "over three shards", []string{"root", "alpha", "beta"}},
		} {
			setSchedulable(b, root, members, run.open)
			before, begun := sumRevisions(b, members), time.Now()
			workspaces := latencies(creator.create(b, run.name, workspaceCount))
			record("workspaces created until Ready, "+run.what, rate(workspaceCount, begun), "1/s", fmt.Sprintf("%d writers, %d workspaces; all shards and the cache in one process", writers, workspaceCount))
			record("workspace create to Ready p50, "+run.what, milliseconds(quantile(workspaces, 0.5)), "ms", "same run")
			record("workspace create to Ready p99, "+run.what, milliseconds(quantile(workspaces, 0.99)), "ms", "same run")
			waitForIdle(b, root)
			record("etcd writes per workspace created, "+run.what, float64(sumRevisions(b, members)-before)/float64(workspaceCount), "", "revisions of all three; the cache is in one of them")
		}
		creator.stop()
		begun := time.Now()
		deleteAll(b, root.shard, "root")
		record(fmt.Sprintf("deletion of %d workspaces over three shards", 3*workspaceCount+30), time.Since(begun).Seconds(), "s", "until the last is deleted")
		for _, member := range members[1:] {
			stopShard(b, member.shard)
		}
		stopShard(b, root.shard)
	}
}

func startShards(b *testing.B, names ...string) []shardInstance {
	b.Helper()
	root := shardInstance{name: "root", etcd: startEtcd(b)}
	root.shard = shardtesting.StartIn(b, b.TempDir(), root.etcd.configure)
	members := []shardInstance{root}
	for _, name := range names {
		other := shardInstance{name: name, etcd: startEtcd(b)}
		other.shard = shardtesting.StartShard(b, root.shard, name, other.etcd.configure)
		members = append(members, other)
	}
	root.shard.WaitShards(b, names...)
	return members
}

// setSchedulable marks only some shards as schedulable.
func setSchedulable(b *testing.B, root shardInstance, members []shardInstance, names []string) {
	b.Helper()
	c := root.shard.Client(b, root.shard.Masters(b))
	in := shardtesting.In(b.Context(), "root")
	for _, member := range members {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			shard := &corev1alpha1.Shard{}
			if err := c.Get(in, client.ObjectKey{Name: member.name}, shard); err != nil {
				return err
			}
			if shard.Annotations == nil {
				shard.Annotations = map[string]string{}
			}
			shard.Annotations[corev1alpha1.UnschedulableAnnotationKey] = ""
			for _, name := range names {
				if name == member.name {
					delete(shard.Annotations, corev1alpha1.UnschedulableAnnotationKey)
				}
			}
			return c.Update(in, shard)
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	time.Sleep(time.Second) // until the watch cache of root has it
}

// sumRevisions returns the sum of the revisions of all stores.
func sumRevisions(b *testing.B, members []shardInstance) (sum int64) {
	b.Helper()
	for _, member := range members {
		response, err := member.etcd.client.Get(b.Context(), "x")
		if err != nil {
			b.Fatal(err)
		}
		sum += response.Header.Revision
	}
	return sum
}

// waitForIdle waits until no request between shards is pending.
func waitForIdle(b *testing.B, root shardInstance) {
	b.Helper()
	cache, err := cacheclient.New(root.shard.Masters(b), "")
	if err != nil {
		b.Fatal(err)
	}
	defer cache.CloseIdleConnections()
	eventually(b, "no request or report is pending", func(ctx context.Context) error {
		for _, resource := range []schema.GroupResource{shardingv1alpha1.Resource("logicalclusterrequests"), shardingv1alpha1.Resource("logicalclusterreports")} {
			objects, _, err := cache.List(ctx, shardingv1alpha1.SchemeGroupVersion.WithResource(resource.Resource))
			if err != nil {
				return err
			}
			if len(objects) > 0 {
				return fmt.Errorf("%d %s are pending", len(objects), resource)
			}
		}
		return nil
	})
}
