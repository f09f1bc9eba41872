package bench

import (
	"fmt"
	"testing"
	"time"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// deletedWorkspaces is the number of workspaces that BenchmarkDeletion deletes.
var deletedWorkspaces = scaled(1000)

// BenchmarkDeletion measures the deletion of empty workspaces below one parent: how fast it is, and what each costs the
// shard and its etcd. The counts do not depend on the machine.
func BenchmarkDeletion(b *testing.B) {
	recordDuration(b)
	for range b.N {
		etcd := startEtcd(b)
		shard := shardtesting.StartIn(b, b.TempDir(), etcd.configure)
		round := func(name string, n int) {
			creator := newCreator(b, shard, "root")
			creator.create(b, name, n)
			creator.stop()
		}
		round("warm", 10) // excludes one-time cost of caches and connections
		deleteAll(b, shard, "root")
		round("ws", deletedWorkspaces)
		waitForReads()
		before, spent, begun := observe(b, shard, etcd), cpuTime(b), time.Now()
		deleteAll(b, shard, "root")
		took, spent := time.Since(begun), cpuTime(b)-spent
		after := observe(b, shard, etcd)

		n := float64(deletedWorkspaces)
		of := fmt.Sprintf("%d workspaces; deletecollection, until the last is deleted", deletedWorkspaces)
		record("workspaces deleted", n/took.Seconds(), "1/s", of)
		record("processor time per workspace deleted", milliseconds(spent)/n, "ms", "shard and client, without etcd")
		record("etcd writes per workspace deleted", float64(after.writes-before.writes)/n, "", "revisions")
		record("requests per workspace deleted", (after.requests-before.requests)/n, "", "without watches; the client's are few")
		record("requests to etcd per workspace deleted", (after.etcdRequests-before.etcdRequests)/n, "", "reads and writes of storages")
		stopShard(b, shard)
	}
}
