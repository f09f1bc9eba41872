package bench

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	metering "github.com/atoll-dev/atoll/shardserver/usage"
)

// BenchmarkUsage measures what counting the usage of workspaces costs: the share of the processor time of the cheapest request that
// it takes, and the memory of workspaces that are not in use any more.
func BenchmarkUsage(b *testing.B) {
	recordDuration(b)
	for range b.N {
		shard := shardtesting.StartIn(b, b.TempDir(), startEtcd(b).configure)
		creator := newCreator(b, shard, "root")
		cluster := creator.create(b, "tenant", 1)[0].cluster
		creator.stop()
		tenant := newWorkspaceTenant(b, shard, cluster)
		tenant.must(b, http.MethodPost, loads[0].collection, loads[0].object("read"), http.StatusCreated)
		whole := processorTimeOf(b, requests, func() { tenant.must(b, http.MethodGet, loads[0].collection+"/read", "", http.StatusOK) })
		stopShard(b, shard)

		counter := metering.NewCounter("bench", func(context.Context) bool { return true })
		answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
		counting := counter.WithCounting(answer, func(*http.Request) bool { return false })
		ctx := request.WithRequestInfo(logicalcluster.With(b.Context(), logicalcluster.MustParseName(cluster)), &request.RequestInfo{IsResourceRequest: true, Verb: "get"})
		req, recorder := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
		serve := func(handler http.Handler) time.Duration {
			return processorTimeOf(b, 100*requests, func() {
				recorder.Body.Reset()
				handler.ServeHTTP(recorder, req)
			})
		}
		added := serve(counting) - serve(answer)
		record("counting of usage, of the processor time of a get", 100*float64(added)/float64(whole), "%",
			fmt.Sprintf("%s of %s, in process, without network and etcd; goal: at most 2", added, whole))

		record("heap of the usage of an idle workspace", idleUsage(b, startEtcd(b)), "B", fmt.Sprintf("%d workspaces after a request and a flush; goal: at most 64", idleWorkspaces))
	}
}

// idleWorkspaces is how many workspaces a replica counts at most between two flushes.
const idleWorkspaces = 20000

// idleUsage returns the heap that a recorder of usage has for each workspace that was used before the last flush.
func idleUsage(b *testing.B, etcd *etcdServer) float64 {
	b.Helper()
	const exists = "/exists"
	if _, err := etcd.client.Put(b.Context(), exists, ""); err != nil {
		b.Fatal(err)
	}
	recorder := metering.NewRecorder(metering.Config{
		Connect: func() (*clientv3.Client, error) { return etcd.client, nil }, Prefix: "/usage", Shard: "bench",
		Exists:    func(context.Context) bool { return true },
		StoredKey: func(logicalcluster.Name) (string, error) { return exists, nil },
	})
	handler := recorder.WithCounting(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func(*http.Request) bool { return false })
	use := func(prefix string, n int) {
		for i := range n {
			ctx := logicalcluster.With(b.Context(), logicalcluster.MustParseName(fmt.Sprint(prefix, i)))
			ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: "get"})
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
		}
		if err := recorder.Flush(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	use("first", 100) // excludes what is allocated once
	before := measureProcess().heapBytes
	use("idle", idleWorkspaces)
	after := measureProcess().heapBytes
	runtime.KeepAlive(recorder)
	return max(float64(after)-float64(before), 0) / idleWorkspaces
}

// processorTimeOf returns the processor time of one of n calls, on average.
func processorTimeOf(b *testing.B, n int, call func()) time.Duration {
	b.Helper()
	for range 20 {
		call() // excludes what is done once
	}
	before := cpuTime(b)
	for range n {
		call()
	}
	return (cpuTime(b) - before) / time.Duration(n)
}
