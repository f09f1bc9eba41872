package bench

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"
)

var (
	// syncConsumers is the number of workspaces that create objects, idleConsumers that of those that only bind the export.
	syncConsumers, idleConsumers = scaled(100), scaled(1000)
	// syncObjects is the number of objects that the benchmark creates at once, heldObjects that of those whose memory it measures.
	syncObjects, heldObjects = scaled(1000), scaled(10000)
)

// syncRate is the rate of the measurement of latencies, in objects per second.
const syncRate = 50

// BenchmarkSyncAgent measures a sync agent with consumers on three shards. The agent runs in this process, all servers in others. A loop
// that writes the status of every copy simulates the operator on the service cluster.
func BenchmarkSyncAgent(b *testing.B) {
	recordDuration(b)
	for range b.N {
		s := startSyncEnv(b)
		s.addConsumers(b, "used", syncConsumers)
		s.syncOne(b) // everything has been started once
		before := measureProcess()
		s.addConsumers(b, "idle", idleConsumers)
		after := s.settled(b)
		record(fmt.Sprintf("sync agent: heap of an idle workspace, %d bound", idleConsumers), (float64(after.heapBytes)-float64(before.heapBytes))/float64(idleConsumers), "B", "goal: nothing")
		record(fmt.Sprintf("sync agent: goroutines, %d idle workspaces bound", idleConsumers), float64(after.goroutines), "", fmt.Sprintf("goal: unchanged; %d without", before.goroutines))
		s.measureThroughput(b)
		s.measureLatency(b)
		s.measureMemory(b)
		s.stop(b)
	}
}

// syncOne syncs an object of each consumer.
func (s *syncEnv) syncOne(b *testing.B) {
	b.Helper()
	runInParallel(b, len(s.consumers), func(i int) error { return s.create(b, i, "first") })
	s.await(b, len(s.consumers))
}

// measureThroughput creates objects as fast as the server accepts them.
func (s *syncEnv) measureThroughput(b *testing.B) {
	b.Helper()
	logProgress(b, fmt.Sprintf("syncs %d objects at once", syncObjects))
	begun := time.Now()
	runInParallel(b, syncObjects, func(i int) error { return s.create(b, i, fmt.Sprintf("batch-%d", i)) })
	created := time.Since(begun)
	s.await(b, syncObjects)
	record("sync agent: objects synced until status is back", rate(syncObjects, begun), "1/s",
		fmt.Sprintf("%d objects in %d workspaces on 3 shards, created within %.1f s; all processes on one machine", syncObjects, len(s.consumers), created.Seconds()))
}

// measureLatency creates objects at a steady rate.
func (s *syncEnv) measureLatency(b *testing.B) {
	b.Helper()
	n := syncObjects
	logProgress(b, fmt.Sprintf("syncs %d objects at a rate of %d/s", n, syncRate))
	ticker := time.NewTicker(time.Second / syncRate)
	defer ticker.Stop()
	var group sync.WaitGroup
	for i := range n {
		<-ticker.C
		group.Go(func() {
			if err := s.create(b, i, fmt.Sprintf("steady-%d", i)); err != nil {
				b.Error(err)
			}
		})
	}
	group.Wait()
	if b.Failed() {
		b.FailNow()
	}
	var copied, returned []time.Duration
	for _, one := range s.await(b, n) {
		copied, returned = append(copied, one.copied.Sub(one.created)), append(returned, one.returned.Sub(one.answered))
	}
	for _, q := range []float64{0.5, 0.99} {
		what := fmt.Sprintf("%d objects at %d/s; both requests included; goal p99 < 1 s", n, syncRate)
		record(fmt.Sprintf("sync agent: write in the workspace to copy p%.0f", q*100), milliseconds(quantile(copied, q)), "ms", what)
		record(fmt.Sprintf("sync agent: status of the copy to workspace p%.0f", q*100), milliseconds(quantile(returned, q)), "ms", what)
	}
}

// measureMemory creates many objects and measures the heap that the agent needs for each.
func (s *syncEnv) measureMemory(b *testing.B) {
	b.Helper()
	logProgress(b, fmt.Sprintf("syncs %d objects", heldObjects))
	before := s.settled(b)
	runInParallel(b, heldObjects, func(i int) error { return s.create(b, i, fmt.Sprintf("held-%d", i)) })
	s.await(b, heldObjects)
	after := s.settled(b)
	record(fmt.Sprintf("sync agent: heap per synced object, %d objects", heldObjects), (float64(after.heapBytes)-float64(before.heapBytes))/float64(heldObjects)/1024, "KiB", "goal: at most 20 KiB; the informers of both sides")
	record(fmt.Sprintf("sync agent: goroutines, %d objects", heldObjects), float64(after.goroutines), "", fmt.Sprintf("goal: unchanged; %d before", before.goroutines))
}

// settled measures the process once the number of its goroutines stays the same: those of requests have ended.
func (s *syncEnv) settled(b *testing.B) processUsage {
	b.Helper()
	http.DefaultClient.CloseIdleConnections()
	last := measureProcess()
	for range 20 {
		time.Sleep(500 * time.Millisecond)
		now := measureProcess()
		if now.goroutines == last.goroutines {
			return now
		}
		last = now
	}
	return last
}
