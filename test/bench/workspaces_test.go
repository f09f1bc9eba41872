package bench

import (
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// The number of workspaces per figure, and of concurrent writers.
var (
	workspaceCount      = scaled(1000)
	largeWorkspaceCount = scaled(10000)
	workspacesPerRound  = scaled(2000)
)

const (
	rounds  = 5
	writers = 16
)

// BenchmarkStart measures the start of an empty shard until it is ready, embedded etcd included.
func BenchmarkStart(b *testing.B) {
	recordDuration(b)
	for range b.N {
		begun := time.Now()
		shard := shardtesting.Start(b)
		record("kcp start, empty, until ready", time.Since(begun).Seconds(), "s", "goal 5 s; in-process, embedded etcd")
		stopShard(b, shard)
	}
}

// BenchmarkWorkspaces measures the creation and the cost of empty workspaces below one parent, then a start with all of
// them, then their deletion.
func BenchmarkWorkspaces(b *testing.B) {
	recordDuration(b)
	for range b.N {
		etcd, directory := startEtcd(b), b.TempDir()
		beforeStart := measureProcess()
		shard := shardtesting.StartIn(b, directory, etcd.configure)
		creator := newCreator(b, shard, "root")
		creator.create(b, "warm", 10) // excludes one-time cost of caches and connections
		empty := observe(b, shard, etcd)

		begun := time.Now()
		workspaces := latencies(creator.create(b, "ws", workspaceCount))
		record("workspaces created until Ready, flat", rate(workspaceCount, begun), "1/s", fmt.Sprintf("goal 100/s; %d writers, %d workspaces", writers, workspaceCount))
		record("workspace create to Ready p50", milliseconds(quantile(workspaces, 0.5)), "ms", "same run")
		record("workspace create to Ready p99", milliseconds(quantile(workspaces, 0.99)), "ms", "goal 1000 ms; same run")
		waitForReads()
		empty.recordCost(observe(b, shard, etcd), workspaceCount)

		begun = time.Now()
		workspaces = latencies(creator.create(b, "more", largeWorkspaceCount-workspaceCount))
		record(fmt.Sprintf("workspaces created until Ready, up to %d", largeWorkspaceCount), rate(largeWorkspaceCount-workspaceCount, begun), "1/s", "goal 100/s; same shard")
		record(fmt.Sprintf("workspace create to Ready p99, up to %d", largeWorkspaceCount), milliseconds(quantile(workspaces, 0.99)), "ms", "goal 1000 ms")
		creator.stop()
		waitForReads()
		empty.recordCost(observe(b, shard, etcd), largeWorkspaceCount)
		stopShard(b, shard)
		stopped := measureProcess() // global registries of upstream keep parts of a stopped server alive

		begun = time.Now()
		shard = shardtesting.StartIn(b, directory, etcd.configure)
		record(fmt.Sprintf("start with %d workspaces, until ready", largeWorkspaceCount), time.Since(begun).Seconds(), "s", "goal 10 s; etcd is running")
		waitForReads()
		emptyShard := int64(empty.heapBytes) - int64(beforeStart.heapBytes)
		restarted := int64(observe(b, shard, etcd).heapBytes) - int64(stopped.heapBytes)
		record(fmt.Sprintf("heap per empty workspace after a restart, %d workspaces", largeWorkspaceCount), float64(restarted-emptyShard)/float64(largeWorkspaceCount)/1024, "KiB", "without the event history of watch caches")

		begun = time.Now()
		deleteAll(b, shard, "root")
		record(fmt.Sprintf("deletion of %d workspaces, until the last is deleted", largeWorkspaceCount), time.Since(begun).Seconds(), "s", "goal 180 s; deletecollection, repeated on timeout")
		stopShard(b, shard)
	}
}

// BenchmarkTree measures the creation of workspaces that are parents themselves, against the same number below one.
func BenchmarkTree(b *testing.B) {
	recordDuration(b)
	for range b.N {
		shard := shardtesting.StartIn(b, b.TempDir(), startEtcd(b).configure)
		flat := newCreator(b, shard, "root")
		begun := time.Now()
		flat.create(b, "flat", workspaceCount)
		flatRate := rate(workspaceCount, begun)
		flat.stop()

		const width = 10
		begun = time.Now()
		tree, parents := []createdWorkspace(nil), []string{"root"}
		for ; len(tree) < workspaceCount; parents = parents[1:] { // breadth first
			creator := newCreator(b, shard, parents[0])
			for _, child := range creator.create(b, "tree", width) {
				tree, parents = append(tree, child), append(parents, child.cluster)
			}
			creator.stop()
		}
		treeRate := rate(len(tree), begun)
		record("workspaces created until Ready, flat (again)", flatRate, "1/s", "compare with the tree, same shard")
		record("workspaces created until Ready, tree", treeRate, "1/s", fmt.Sprintf("%.0f %% of flat; %d children each, created %d at a time", 100*treeRate/flatRate, width, width))
		record("workspace create to Ready p99, tree", milliseconds(quantile(latencies(tree), 0.99)), "ms", "goal 1000 ms")
		stopShard(b, shard)
	}
}

// waitForReads waits for the goroutines of consistent reads of watch caches, which outlive each read by three seconds.
func waitForReads() { time.Sleep(5 * time.Second) }

// BenchmarkWorkspaceLeaks creates and deletes workspaces repeatedly and measures what remains.
func BenchmarkWorkspaceLeaks(b *testing.B) {
	recordDuration(b)
	for range b.N {
		etcd := startEtcd(b)
		shard := shardtesting.StartIn(b, b.TempDir(), etcd.configure)
		round := func(name string, n int) {
			logProgress(b, name)
			creator := newCreator(b, shard, "root")
			creator.create(b, name, n)
			creator.stop()
			deleteAll(b, shard, "root")
		}
		// Watch caches keep events for at least 75 seconds: these rounds grow their history to its full size.
		for i := range 2 {
			round(fmt.Sprint("warm", i), workspacesPerRound)
		}
		waitForReads()
		before := observe(b, shard, etcd)
		lines := []int{before.series}
		for i := range rounds {
			round(fmt.Sprint("round", i), workspacesPerRound)
			lines = append(lines, series(getRaw(b, shard.Masters(b), "/metrics")))
		}
		waitForReads()
		after := observe(b, shard, etcd)
		cycles := float64(rounds * workspacesPerRound)
		record("left per workspace created and deleted: heap", (float64(after.heapBytes)-float64(before.heapBytes))/cycles, "B", fmt.Sprintf("event history of the watch caches until it is full, goal 0 after that; %d rounds of %d, after two of the same size", rounds, workspacesPerRound))
		record("left after all rounds: keys", float64(after.keys-before.keys), "", "goal 0")
		record("left after all rounds: goroutines", float64(after.goroutines-before.goroutines), "", "goal 0")
		record("left after all rounds: metric lines", float64(lines[rounds]-lines[0]), "", fmt.Sprintf("goal 0; first uses create some, which remain: %v before and after each round", lines))
		record("metric lines added by the last round", float64(lines[rounds]-lines[rounds-1]), "", "goal 0")
		record("metric lines added while waiting", float64(after.series-lines[rounds]), "", "first consistency checks of the watch caches, every five minutes")
		stopShard(b, shard)
	}
}

func stopShard(b *testing.B, shard *shardtesting.Shard) {
	b.Helper()
	if err := shard.Stop(); err != nil {
		b.Fatal(err)
	}
}

// deleteAll deletes all workspaces below a logical cluster and waits until none remains.
func deleteAll(b *testing.B, shard *shardtesting.Shard, parent string) {
	b.Helper()
	c := shard.Client(b, shard.Admin(b))
	ctx := shardtesting.In(b.Context(), parent)
	begun := time.Now()
	// A request times out after a minute, complete or not, and the client repeats it.
	for err := errors.New("not requested"); err != nil; {
		if err = c.DeleteAllOf(ctx, &tenancyv1alpha1.Workspace{}); err != nil && time.Since(begun) > 20*time.Minute {
			b.Fatal(err)
		}
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(tenancyv1alpha1.SchemeGroupVersion.WithKind("WorkspaceList"))
	for ; ; time.Sleep(200 * time.Millisecond) {
		if err := c.List(ctx, list, client.Limit(1)); err != nil {
			b.Fatal(err)
		}
		if len(list.Items) == 0 {
			return
		}
		if time.Since(begun) > 20*time.Minute {
			b.Fatalf("workspaces remain after %s", time.Since(begun))
		}
	}
}

// rate returns n per second since begun.
func rate(n int, begun time.Time) float64 { return float64(n) / time.Since(begun).Seconds() }

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }
