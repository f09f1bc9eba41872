package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// watchConsumers measures how a provider watches and lists its consumers through the virtual workspace of the export.
// The baseline is the shard's own wildcard endpoint, which only system:masters may use.
func watchConsumers(b *testing.B, shard *shardtesting.Shard, export *apisv1alpha2.APIExport, clusters []createdWorkspace) {
	b.Helper()
	base := shard.Masters(b)
	runInParallel(b, len(clusters), func(i int) error {
		return apiServerAt(b, base, clusters[i].cluster).send(http.MethodPost, exportedResourcePath, `{"apiVersion":"bench.example.com/v1","kind":"Widget","metadata":{"name":"one"},`+loads[1].payload+`}`)
	})
	virtual := newWildcardServer(b, "virtual workspace", shard.Admin(b), virtualWorkspaceURL(b, shard, export)+"/clusters/*")
	wildcard := newWildcardServer(b, "wildcard", base, base.Host+"/clusters/*")
	paths := map[*apiServer]string{virtual: "/apis/bench.example.com/v1/widgets", wildcard: "/apis/bench.example.com/v1/widgets:" + export.Status.IdentityHash}

	const rounds, each = 2 * repetitions, 40
	rates, costs := map[*apiServer][]float64{}, map[*apiServer][]float64{}
	for range rounds {
		for _, p := range []*apiServer{virtual, wildcard} {
			spent := cpuTime(b)
			rates[p] = append(rates[p], p.runParallel(b, each, func(int) error { return p.send(http.MethodGet, paths[p]+"?resourceVersion=0", "") }))
			costs[p] = append(costs[p], milliseconds(cpuTime(b)-spent)/each)
		}
	}
	record(fmt.Sprintf("list of %d consumers through the virtual workspace", len(clusters)), median(rates[virtual]), "1/s",
		fmt.Sprintf("shard's wildcard %.1f/s; medians of %d; %d clients", median(rates[wildcard]), rounds, writers))
	record(fmt.Sprintf("processor time of a list of %d consumers, virtual workspace", len(clusters)), median(costs[virtual]), "ms",
		fmt.Sprintf("shard's wildcard %.2f ms, ratio %.2f; both ends; medians of %d", median(costs[wildcard]), median(costs[virtual])/median(costs[wildcard]), rounds))

	before := measureProcess()
	changes := min(1000, len(clusters))
	opened := time.Now()
	stream := virtual.watchEvents(b, paths[virtual]+"?watch=1", len(clusters))
	record(fmt.Sprintf("watch of %d consumers, until all objects are received", len(clusters)), time.Since(opened).Seconds(), "s", "virtual workspace, one provider")
	after := measureProcess()
	record("heap of the provider's watch", (float64(after.heapBytes)-float64(before.heapBytes))/1024, "KiB", fmt.Sprintf("%d consumers; both ends, without the watch cache", len(clusters)))
	record("goroutines of the provider's watch", float64(after.goroutines-before.goroutines), "", "both ends")
	latencies := make([]time.Duration, 0, changes)
	for i := range changes {
		cluster := clusters[i*len(clusters)/changes].cluster
		mark := fmt.Sprintf(`"change":"c%d"`, i)
		arrived := stream.expect(mark)
		begun := time.Now()
		if err := apiServerAt(b, base, cluster).send(http.MethodPatch, exportedResourcePath+"/one", `{"metadata":{"labels":{`+mark+`}}}`); err != nil {
			b.Fatal(err)
		}
		select {
		case at := <-arrived:
			latencies = append(latencies, at.Sub(begun))
		case <-time.After(time.Minute):
			b.Fatalf("change %d was not delivered", i)
		}
	}
	stream.cancel()
	for _, q := range []float64{0.5, 0.99} {
		record(fmt.Sprintf("change in a consumer to the provider's event p%.0f", q*100), milliseconds(quantile(latencies, q)), "ms", fmt.Sprintf("the request included; %d changes one after the other, %d consumers", changes, len(clusters)))
	}
}

// newWildcardServer returns an apiServer for a URL that serves many logical clusters.
func newWildcardServer(b *testing.B, name string, config *rest.Config, url string) *apiServer {
	b.Helper()
	at := rest.CopyConfig(config)
	at.Host = url
	client, err := rest.HTTPClientFor(at)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(client.CloseIdleConnections)
	return &apiServer{name: name, config: at, client: client}
}

// eventWatch is a watch that signals when a line with a text arrives.
type eventWatch struct {
	cancel context.CancelFunc

	mu      sync.Mutex
	text    []byte
	arrived chan time.Time
}

// watchEvents opens a watch and returns once the initial events of all existing objects have arrived.
func (a *apiServer) watchEvents(b *testing.B, path string, exist int) *eventWatch {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	response, err := a.request(ctx, http.MethodGet, path, "")
	if err != nil {
		b.Fatal(err)
	}
	e := &eventWatch{cancel: cancel}
	all := make(chan struct{})
	go func() {
		defer response.Body.Close()
		lines, seen := bufio.NewReaderSize(response.Body, 1<<20), 0
		for {
			line, err := lines.ReadSlice('\n')
			if err != nil {
				return
			}
			if seen++; seen == exist {
				close(all)
			}
			e.handleLine(line)
		}
	}()
	select {
	case <-all:
	case <-time.After(2 * time.Minute):
		b.Fatal("the watch of the provider does not have all objects after two minutes")
	}
	return e
}

func (e *eventWatch) expect(text string) <-chan time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text, e.arrived = []byte(text), make(chan time.Time, 1)
	return e.arrived
}

func (e *eventWatch) handleLine(line []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.text != nil && bytes.Contains(line, e.text) {
		e.arrived <- time.Now()
		e.text = nil
	}
}
