package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/migration/moveload"
)

// BenchmarkMoves moves workspaces of different sizes under load between two shards, and measures how long writes and reads are refused
// at the front proxy.
func BenchmarkMoves(b *testing.B) {
	recordDuration(b)
	for range b.N {
		i := installation.Start(b, installationBinaries(b), "--feature-gates=LogicalClusterMigration=true")
		root, err := client.New(i.Admin(b, "root"), client.Options{Scheme: loopback.Scheme})
		if err != nil {
			b.Fatal(err)
		}
		for _, objects := range []int{scaled(1000), scaled(10000)} {
			measureMove(b, i, root, objects)
		}
	}
}

func measureMove(b *testing.B, i *installation.Installation, root client.Client, objects int) {
	b.Helper()
	name := fmt.Sprint("size-", objects)
	i.NewWorkspace(b, name, "tenant", shardtesting.OnShard(installation.Alpha))
	workspace := &tenancyv1alpha1.Workspace{}
	if err := root.Get(b.Context(), client.ObjectKey{Name: name}, workspace); err != nil {
		b.Fatal(err)
	}
	config := i.Admin(b, "root:"+name)
	moveload.Fill(b, config, objects)
	var writes, reads, slowest, took time.Duration
	const moves = 2 // there and back
	for n, shard := range []string{installation.Beta, installation.Alpha} {
		logProgress(b, fmt.Sprintf("moves %d objects to %s", objects, shard))
		l, begun := moveload.Start(b, config), time.Now()
		migration := &migrationv1alpha1.LogicalClusterMigration{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(name, "-", n)},
			Spec:       migrationv1alpha1.LogicalClusterMigrationSpec{LogicalCluster: workspace.Spec.Cluster, DestinationShard: shard},
		}
		if err := root.Create(b.Context(), migration); err != nil {
			b.Fatal(err)
		}
		shardtesting.EventuallyWithin(b, 20*time.Minute, "the end of the move", func(ctx context.Context) error {
			if err := root.Get(ctx, client.ObjectKeyFromObject(migration), migration); err != nil {
				return err
			}
			if migration.Status.Phase != migrationv1alpha1.LogicalClusterMigrationPhaseCompleted {
				return fmt.Errorf("status %+v", migration.Status)
			}
			return nil
		})
		l.End()
		writes, reads, slowest, took = writes+l.Writes.Down, reads+l.Reads.Down, max(slowest, l.Reads.Slowest), took+time.Since(begun)
	}
	what := fmt.Sprintf("move of %d objects of 2 KiB: ", objects)
	record(what+"writes refused", milliseconds(writes)/moves, "ms", "goal 1000 ms; there and back, one writer and one reader at the front proxy")
	record(what+"reads refused", milliseconds(reads)/moves, "ms", "goal 0; same run")
	record(what+"the slowest read", milliseconds(slowest), "ms", "same run")
	record(what+"until nothing is left", took.Seconds()/moves, "s", "same run")
}
