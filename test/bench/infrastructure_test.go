package bench

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

var (
	// infraTenants is the number of tenants, infraInstances that of the instances that each of them creates.
	infraTenants, infraInstances = 10, scaled(100)
	// infraNoisy is the number of instances of a tenant that others wait for.
	infraNoisy = scaled(1000)
	// infraCatalogue is the number of Templates of a large catalogue.
	infraCatalogue = scaled(200)
)

// infraKinds are the Templates whose instances the benchmark measures.
var infraKinds = []struct{ backend, resource, kind, config string }{
	{"instant", "instants", "Instant", "{}"},
	{"manifest", "manifests", "Manifest", infraManifests},
}

// BenchmarkInfrastructure measures the infrastructure provider with tenants on three shards, with a backend that creates no objects, and
// with manifest, whose instances are two objects in a kube-apiserver. The provider runs in this process, all servers in others.
func BenchmarkInfrastructure(b *testing.B) {
	recordDuration(b)
	for range b.N {
		for _, delay := range etcdDelays {
			e := startInfraEnv(b, delay)
			for _, k := range infraKinds {
				if err := e.offer(b, k.backend, k.resource, k.kind, k.config); err != nil {
					b.Fatal(err)
				}
			}
			e.offered(b, len(infraKinds))
			e.tenants = newConsumers(b, e.Installation, e.admin, e.client, "tenant", infraTenants+1, infraBinding, infraPath+infraKinds[1].resource)
			e.followInstances(b, infraKinds[0].resource, infraKinds[1].resource)
			for _, k := range infraKinds {
				e.measureRate(b, delay, k.backend, k.resource, k.kind)
			}
			e.measureNoisyTenant(b, delay)
			e.measureCatalogue(b, delay)
			e.stop(b)
		}
	}
}

// orderMany creates instances of a tenant, or of all but the last one in turn, and returns their keys.
func (e *infraEnv) orderMany(b *testing.B, resource, kind, prefix string, n int, tenants ...string) (keys []string) {
	b.Helper()
	for i := range n {
		keys = append(keys, fmt.Sprintf("%s/%s-%d", tenants[i%len(tenants)], prefix, i))
	}
	runInParallel(b, n, func(i int) error {
		cluster, name, _ := strings.Cut(keys[i], "/")
		return e.order(b, cluster, resource, kind, name)
	})
	return keys
}

// measureRate creates the instances of all tenants as fast as the server accepts them.
func (e *infraEnv) measureRate(b *testing.B, delay time.Duration, backend, resource, kind string) {
	b.Helper()
	n := infraTenants * infraInstances
	e.await(b, e.orderMany(b, resource, kind, "first-"+backend, infraTenants, e.tenants[:infraTenants]...)...) // everything has been started once
	logProgress(b, fmt.Sprintf("creates %d instances with %s", n, backend))
	before, looks := measureProcess(), reconciles(b)
	begun := time.Now()
	keys := e.orderMany(b, resource, kind, "batch-"+backend, n, e.tenants[:infraTenants]...)
	created := time.Since(begun)
	took := e.await(b, keys...)
	lasted := time.Since(begun)
	looks = reconciles(b) - looks
	after := measureProcess()
	name := func(what string) string { return withDelay("infrastructure, "+backend+": "+what, delay) }
	against := fmt.Sprintf("%d instances of %d tenants on 3 shards, created within %.1f s; all processes on one machine", n, infraTenants, created.Seconds())
	record(name("instances until Ready"), float64(n)/lasted.Seconds(), "1/s", against)
	record(name("reconciles"), looks/lasted.Seconds(), "1/s", fmt.Sprintf("%.1f per instance", looks/float64(n)))
	record(name("create to Ready p50"), milliseconds(quantile(took, 0.5)), "ms", "same run, all at once")
	if delay == 0 {
		record(name("heap per instance"), (float64(after.heapBytes)-float64(before.heapBytes))/float64(n)/1024, "KiB", "goal: at most 20 KiB; the informers")
		record(name("goroutines"), float64(after.goroutines), "", fmt.Sprintf("goal: unchanged; %d before", before.goroutines))
	}
}

// measureNoisyTenant measures how much longer the first instance of a tenant takes while another tenant waits for many.
func (e *infraEnv) measureNoisyTenant(b *testing.B, delay time.Duration) {
	b.Helper()
	k := infraKinds[1]
	quiet, noisy := e.tenants[infraTenants], e.tenants[0]
	alone := e.await(b, e.orderMany(b, k.resource, k.kind, "alone", 1, quiet)...)[0]
	logProgress(b, fmt.Sprintf("has a tenant wait for %d instances", infraNoisy))
	waiting := e.orderMany(b, k.resource, k.kind, "noisy", infraNoisy, noisy)
	ready := 0
	e.mu.Lock()
	for _, key := range waiting {
		if _, done := e.ready[key]; done {
			ready++
		}
	}
	e.mu.Unlock()
	beside := e.await(b, e.orderMany(b, k.resource, k.kind, "beside", 1, quiet)...)[0]
	e.await(b, waiting...)
	record(withDelay(fmt.Sprintf("infrastructure: delay of a tenant's first instance by %d of another", infraNoisy), delay), milliseconds(beside-alone), "ms",
		fmt.Sprintf("goal: at most 1 s; %.0f ms beside the %d that waited, %.0f ms alone", milliseconds(beside), infraNoisy-ready, milliseconds(alone)))
}

// measureCatalogue measures how long a new workspace waits for a large catalogue.
func (e *infraEnv) measureCatalogue(b *testing.B, delay time.Duration) {
	b.Helper()
	logProgress(b, fmt.Sprintf("offers %d templates", infraCatalogue))
	begun := time.Now()
	runInParallel(b, infraCatalogue, func(i int) error {
		return e.offer(b, "instant", fmt.Sprintf("kind%ds", i), fmt.Sprintf("Kind%d", i), "{}")
	})
	total := infraCatalogue + len(infraKinds)
	e.offered(b, total)
	record(withDelay("infrastructure: templates until Ready", delay), rate(infraCatalogue, begun), "1/s", fmt.Sprintf("%d at once", infraCatalogue))
	var visible, served []time.Duration
	for _, shard := range e.Shards() {
		created := time.Now()
		cluster := shardtesting.NewWorkspace(b, e.client, "root", "new-"+shard, shardtesting.OnShard(shard)).Spec.Cluster
		workspace := time.Since(created)
		begun := time.Now()
		if err := e.at(b, cluster).send(http.MethodPost, "/apis/apis.kcp.io/v1alpha2/apibindings", infraBinding); err != nil {
			b.Fatal(err)
		}
		eventually(b, "the catalogue is visible", func(ctx context.Context) error {
			list := &struct{ Items []struct{} }{}
			if err := e.list(ctx, b, cluster, infraTemplates, list); err != nil {
				return err
			}
			if len(list.Items) != total {
				return fmt.Errorf("%d of %d templates", len(list.Items), total)
			}
			return nil
		})
		visible = append(visible, workspace+time.Since(begun))
		eventually(b, "the last kind is served", func(context.Context) error {
			return e.at(b, cluster).send(http.MethodGet, infraPath+fmt.Sprintf("kind%ds", infraCatalogue-1), "")
		})
		served = append(served, workspace+time.Since(begun))
	}
	against := fmt.Sprintf("%d templates; slowest of 3 shards; creation of the workspace and the binding included", total)
	record(withDelay("infrastructure: catalogue visible in a new workspace", delay), milliseconds(quantile(visible, 1)), "ms", against)
	record(withDelay("infrastructure: all kinds served in a new workspace", delay), milliseconds(quantile(served, 1)), "ms", against)
}
