package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/sharedindex"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/index"
	"github.com/atoll-dev/atoll/proxy/shards"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/sharded"
)

// env is an installation of one shard behind a proxy, with clients of one administrator for either.
type env struct {
	*installation.Installation
	proxied, direct *http.Client
	admin           *rest.Config
}

func startEnv(b *testing.B, o sharded.Options) *env {
	b.Helper()
	o.Shards, o.NoCache = []string{installation.Root}, true
	s := &env{Installation: installation.StartWith(b, installationBinaries(b), o)}
	s.admin = s.Admin(b, "root")
	s.proxied, s.direct = httpClient(b, s.admin), httpClient(b, s.admin)
	return s
}

func httpClient(b *testing.B, config *rest.Config) *http.Client {
	b.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(client.CloseIdleConnections)
	return client
}

// get sends a GET and reads the whole response.
func get(client *http.Client, url string) (status int, body string, err error) {
	answer, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(raw), err
}

func mustGet(b *testing.B, client *http.Client, url string) {
	b.Helper()
	if status, body, err := get(client, url); err != nil || status != http.StatusOK {
		b.Fatalf("GET %s: %d, %v, %.200s", url, status, err, body)
	}
}

// cost is the resource usage of the proxy, from its own metrics.
type cost struct{ cpu, resident, goroutines float64 }

func (e *env) measureCost(b *testing.B) cost {
	b.Helper()
	status, page, err := get(e.proxied, e.URL+"/metrics")
	if err != nil || status != http.StatusOK {
		b.Fatalf("metrics of the proxy: %d, %v", status, err)
	}
	var c cost
	for line := range strings.Lines(page) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		for want, to := range map[string]*float64{"process_cpu_seconds_total": &c.cpu, "process_resident_memory_bytes": &c.resident, "go_goroutines": &c.goroutines} {
			if name == want {
				*to, _ = strconv.ParseFloat(value, 64)
			}
		}
	}
	return c
}

const smallRequestPath = "/clusters/root/api/v1/namespaces/default"

// BenchmarkFrontProxy measures the latency that a front proxy adds to a request, and its cost of requests and watches.
func BenchmarkFrontProxy(b *testing.B) {
	recordDuration(b)
	for range b.N {
		s := startEnv(b, sharded.Options{})
		s.measureOverhead(b)
		s.measureRequestCost(b)
		s.measureWatchCost(b)
	}
}

// measureOverhead sends the same request to the shard and through the proxy, alternating.
func (e *env) measureOverhead(b *testing.B) {
	const rounds = 200
	var direct, proxied []time.Duration
	each := scaled(2000) / rounds * 2
	for round := range rounds {
		for range max(each, 1) {
			for client, to := range map[*http.Client]*[]time.Duration{e.direct: &direct, e.proxied: &proxied} {
				url := e.Shard + smallRequestPath
				if client == e.proxied {
					url = e.URL + smallRequestPath
				}
				begun := time.Now()
				mustGet(b, client, url)
				if round > 5 { // connections and caches are warm
					*to = append(*to, time.Since(begun))
				}
			}
		}
	}
	for name, q := range map[string]float64{"p50": 0.5, "p99": 0.99} {
		without, with := milliseconds(quantile(direct, q)), milliseconds(quantile(proxied, q))
		record("proxy: a small GET, "+name, with, "ms", fmt.Sprintf("direct %.2f; the proxy adds %.2f", without, with-without))
	}
}

// measureRequestCost sends requests at a steady rate for a while.
func (e *env) measureRequestCost(b *testing.B) {
	const perSecond, workers = 1000, 16
	seconds := max(2, scaled(20))
	before, begun := e.measureCost(b), time.Now()
	tokens := make(chan struct{}, perSecond)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for range tokens {
				if status, _, err := get(e.proxied, e.URL+smallRequestPath); err != nil || status != http.StatusOK {
					b.Errorf("%d, %v", status, err)
				}
			}
		})
	}
	tick := time.NewTicker(10 * time.Millisecond)
	sent := 0
	for sent < perSecond*seconds {
		<-tick.C
		for range perSecond / 100 {
			tokens <- struct{}{}
			sent++
		}
	}
	tick.Stop()
	close(tokens)
	group.Wait()
	used := e.measureCost(b).cpu - before.cpu
	record("proxy: processors per 1,000 requests a second", used/float64(sent)*1000, "cores",
		fmt.Sprintf("%d requests at %.0f/s through one connection", sent, float64(sent)/time.Since(begun).Seconds()))
}

// measureWatchCost opens watches and keeps them open.
func (e *env) measureWatchCost(b *testing.B) {
	n := scaled(2000)
	before := e.measureCost(b)
	ctx, cancel := context.WithCancel(b.Context())
	var open sync.WaitGroup
	for range n {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL+"/clusters/root/api/v1/configmaps?watch=1&resourceVersion=0", nil)
		if err != nil {
			b.Fatal(err)
		}
		answer, err := e.proxied.Do(req)
		if err != nil || answer.StatusCode != http.StatusOK {
			b.Fatalf("watching: %v", err)
		}
		open.Go(func() {
			defer answer.Body.Close()
			_, _ = io.Copy(io.Discard, answer.Body)
		})
	}
	after := e.measureCost(b)
	cancel()
	open.Wait()
	record("proxy: memory per open watch", (after.resident-before.resident)/float64(n)/1024, "KiB", fmt.Sprintf("resident, %d watches; %.1f MiB before", n, before.resident/(1<<20)))
	record("proxy: goroutines per open watch", (after.goroutines-before.goroutines)/float64(n), "", "")
}

// BenchmarkIndexDelay measures the delay from the watch event of a logical cluster at its shard until the proxy routes
// to it, or stops routing to it.
func BenchmarkIndexDelay(b *testing.B) {
	recordDuration(b)
	for range b.N {
		startEnv(b, sharded.Options{}).measureIndexDelay(b, "by watching shards")
		etcd := startEtcd(b)
		flags := []string{"--shared-index-etcd-servers=" + etcd.url}
		startEnv(b, sharded.Options{ShardFlags: flags, ProxyFlags: flags}).measureIndexDelay(b, "by the shared index")
	}
}

func (e *env) measureIndexDelay(b *testing.B, how string) {
	b.Helper()
	n := scaled(200)
	seen := e.watchClusters(b)
	var mu sync.Mutex
	delays := map[string][]time.Duration{}
	var waiting sync.WaitGroup
	expected := 2 * n
	waiting.Go(func() {
		for range expected {
			event, ok := <-seen
			if !ok {
				return
			}
			waiting.Go(func() {
				delay, err := e.waitForRoute(event)
				if err != nil {
					b.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				delays[event.kind] = append(delays[event.kind], delay)
			})
		}
	})
	config := rest.CopyConfig(e.admin)
	config.Host = e.URL
	c, err := newClusterClient(config)
	if err != nil {
		b.Fatal(err)
	}
	in := shardtesting.In(b.Context(), "root")
	workspace := func(i int) *tenancyv1alpha1.Workspace {
		return &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("delay-%d", i)},
			Spec: tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: "root"}}}
	}
	for i := range n {
		if err := c.Create(in, workspace(i)); err != nil {
			b.Fatal(err)
		}
		eventually(b, "a workspace is ready", func(ctx context.Context) error {
			w := workspace(i)
			if err := c.Get(shardtesting.In(ctx, "root"), keyOf(w), w); err != nil || w.Status.Phase != "Ready" {
				return fmt.Errorf("%v, phase %q", err, w.Status.Phase)
			}
			return nil
		})
	}
	for i := range n {
		if err := c.Delete(in, workspace(i)); err != nil {
			b.Fatal(err)
		}
	}
	waiting.Wait()
	for kind, what := range map[string]string{"ADDED": "create", "DELETED": "delete"} {
		for name, q := range map[string]float64{"p50": 0.5, "p99": 0.99} {
			record(fmt.Sprintf("proxy: index delay after %s %s, %s", what, how, name), milliseconds(quantile(delays[kind], q)), "ms",
				fmt.Sprintf("%d logical clusters; from the shard's event to the proxy's response, which is included", len(delays[kind])))
		}
	}
}

// clusterEvent is a watch event of a logical cluster.
type clusterEvent struct {
	kind, cluster string
	at            time.Time
}

// watchClusters sends the events of logical clusters until the benchmark ends.
func (e *env) watchClusters(b *testing.B) <-chan clusterEvent {
	b.Helper()
	masters := httpClient(b, e.Masters(b, installation.Root))
	list := e.Shard + "/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters"
	_, body, err := get(masters, list)
	if err != nil {
		b.Fatal(err)
	}
	var at metav1.PartialObjectMetadataList
	if err := json.Unmarshal([]byte(body), &at); err != nil {
		b.Fatal(err)
	}
	answer, err := masters.Get(list + "?watch=1&resourceVersion=" + at.ResourceVersion)
	if err != nil {
		b.Fatal(err)
	}
	seen := make(chan clusterEvent, 1000)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(seen)
		lines := bufio.NewScanner(answer.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			received := time.Now()
			var event struct {
				Type   string                       `json:"type"`
				Object metav1.PartialObjectMetadata `json:"object"`
			}
			if json.Unmarshal(lines.Bytes(), &event) == nil && (event.Type == "ADDED" || event.Type == "DELETED") {
				seen <- clusterEvent{event.Type, event.Object.Annotations[logicalcluster.AnnotationKey], received}
			}
		}
		_ = lines.Err() // of a watch that the benchmark has ended
	})
	b.Cleanup(func() {
		_ = answer.Body.Close()
		reading.Wait()
	})
	return seen
}

// waitForRoute polls the proxy until it routes as the event requires, and returns the delay since the event.
func (e *env) waitForRoute(n clusterEvent) (time.Duration, error) {
	for time.Since(n.at) < time.Minute {
		_, body, err := get(e.proxied, e.URL+"/clusters/"+n.cluster+"/version")
		if err != nil {
			return 0, err
		}
		if unknown := strings.Contains(body, "workspace access not permitted"); unknown == (n.kind == "DELETED") {
			return time.Since(n.at), nil
		}
	}
	return 0, fmt.Errorf("the proxy does not observe %s %s", n.cluster, n.kind)
}

// BenchmarkSharedIndexScale reads an installation of many workspaces from the shared index, as a starting proxy does.
func BenchmarkSharedIndexScale(b *testing.B) {
	recordDuration(b)
	n := scaled(100_000)
	for range b.N {
		etcd := startEtcd(b)
		o := sharedindex.NewOptions()
		o.Servers = []string{etcd.url}
		before := etcd.measure(b)
		begun := time.Now()
		stop := runInBackground(b, func(ctx context.Context) { sharedindex.NewWriter(o, installation.Root, fakeShard(n)).Run(ctx) })
		eventually(b, "all records are written", func(ctx context.Context) error {
			answer, err := etcd.client.Get(ctx, o.Prefix+"/"+installation.Root+"/complete")
			if err == nil && answer.Count == 0 {
				err = fmt.Errorf("not complete")
			}
			return err
		})
		record(fmt.Sprintf("shared index: writing %d workspaces", n), time.Since(begun).Seconds(), "s", "into an empty etcd, by one shard")
		stop()
		after := etcd.measure(b)
		record(fmt.Sprintf("shared index: etcd bytes per workspace, %d", n), float64(after.bytes-before.bytes)/float64(n), "B", "two records each; database in use, without history")

		empty := measureProcess()
		begun = time.Now()
		idx := index.New()
		shared := shards.NewSharedIndexReader(o, idx, shards.Subset{}, nil)
		stop = runInBackground(b, func(ctx context.Context) {
			if err := shared.Run(ctx); err != nil {
				b.Error(err)
			}
		})
		if err := shared.WaitForSync(b.Context()); err != nil {
			b.Fatal(err)
		}
		record(fmt.Sprintf("shared index: reading %d workspaces", n), time.Since(begun).Seconds(), "s", "required before a proxy listens")
		if counted := idx.Load().Counts()[installation.Root]; counted != n {
			b.Fatalf("%d workspaces are indexed, want %d", counted, n)
		}
		full := measureProcess()
		record(fmt.Sprintf("index: bytes per workspace, %d", n), float64(full.heapBytes-empty.heapBytes)/float64(n), "B", "goal 300; heap, with its logical cluster and its type")
		stop()
	}
}

// runInBackground calls f in a goroutine until the returned function is called.
func runInBackground(b *testing.B, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	b.Cleanup(stop)
	return stop
}

// fakeShard simulates a shard with that many workspaces, ten below each.
type fakeShard int

func (f fakeShard) ListAndWatch(ctx context.Context, emit func(sharedindex.Change), synced func()) error {
	put := func(kind sharedindex.Kind, cluster logicalcluster.Name, name string, value any) {
		encoded, err := sharedindex.Encode(value)
		if err != nil {
			panic(err) // small types that always encode
		}
		emit(sharedindex.Change{Key: sharedindex.Key{Kind: kind, Cluster: cluster, Name: name}, Value: encoded})
	}
	put(sharedindex.Shards, logicalcluster.Name{}, installation.Root, sharedindex.Shard{BaseURL: "https://root.example"})
	put(sharedindex.Clusters, logicalcluster.Root, "", sharedindex.Cluster{Type: "root:root"})
	clusters := []logicalcluster.Name{logicalcluster.Root}
	for i := range int(f) {
		cluster := logicalcluster.RandomName()
		put(sharedindex.Clusters, cluster, "", sharedindex.Cluster{Type: "root:universal"})
		put(sharedindex.Workspaces, clusters[i/10], fmt.Sprintf("workspace-%d", i), sharedindex.Workspace{Cluster: cluster.String()})
		clusters = append(clusters, cluster)
	}
	synced()
	<-ctx.Done()
	return ctx.Err()
}
