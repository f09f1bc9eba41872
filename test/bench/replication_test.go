package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// pollInterval is the polling interval, which is the accuracy of the measurement.
const pollInterval = 500 * time.Microsecond

// BenchmarkReplicationLag measures the delay from the acknowledgement of a write at one shard until all others have it:
// through its publisher, the cache, and their replica informers. Writes are sequential, of one object each.
func BenchmarkReplicationLag(b *testing.B) {
	recordDuration(b)
	for range b.N {
		members := startShards(b, "alpha", "beta")
		root, others := members[0], members[1:]
		c, in := root.shard.Client(b, root.shard.Masters(b)), shardtesting.In(b.Context(), "root")
		var created, deleted []time.Duration
		n := scaled(500)
		for i := range n {
			resourceSchema := shardtesting.NewSchema(fmt.Sprintf("v%d", i), schema.GroupResource{Group: "lag.example.com", Resource: "widgets"}, "Widget")
			if err := c.Create(in, resourceSchema); err != nil {
				b.Fatal(err)
			}
			created = append(created, replicationLag(b, others, resourceSchema.Name, true))
			if err := c.Delete(in, resourceSchema); err != nil {
				b.Fatal(err)
			}
			deleted = append(deleted, replicationLag(b, others, resourceSchema.Name, false))
		}
		for _, of := range []struct {
			what string
			took []time.Duration
		}{{"create", created}, {"delete", deleted}} {
			for _, q := range []float64{0.5, 0.99} {
				record(fmt.Sprintf("replication lag after %s p%.0f", of.what, q*100), milliseconds(quantile(of.took, q)), "ms",
					fmt.Sprintf("until both other shards have it; %d writes, one at a time; all shards and the cache in one process", n))
			}
		}
		for _, member := range others {
			stopShard(b, member.shard)
		}
		stopShard(b, root.shard)
	}
}

// replicationLag returns the delay from now until the shards have an APIResourceSchema of root, or no shard has it.
func replicationLag(b *testing.B, members []shardInstance, name string, present bool) time.Duration {
	b.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	for _, member := range members {
		for {
			_, err := member.shard.Server.Exports().GetSchema(ctx, logicalcluster.Root, name)
			if present && err == nil || !present && apierrors.IsNotFound(err) {
				break
			}
			if ctx.Err() != nil {
				b.Fatalf("shard %s does not receive %s: %v", member.name, name, err)
			}
			time.Sleep(pollInterval)
		}
	}
	return time.Since(begun)
}
