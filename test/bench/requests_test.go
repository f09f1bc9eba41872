package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/shardserver/loopback"
)

// The comparison with stock sends plain HTTP requests, so that both servers receive the same bytes and no decoding of a
// client library is measured.
var (
	objects  = scaled(3000) // per kind and server
	watchers = scaled(100)
	lists    = scaled(40)
)

// changes is the number of updates of the watched object.
const changes = 50

// repetitions of each comparison; the servers alternate, and the median is recorded.
const repetitions = 3

// load is one kind of object.
type load struct {
	name, collection, apiVersion, kind, payload string
}

var loads = []load{
	{"config maps", "/api/v1/namespaces/default/configmaps", "v1", "ConfigMap", `"data":{"text":"` + strings.Repeat("some words. ", 80) + `"}`},
	{"custom resources", "/apis/bench.example.com/v1/namespaces/default/widgets", "bench.example.com/v1", "Widget",
		`"spec":{"size":3,"text":"` + strings.Repeat("some words. ", 60) + `","parts":[` + strings.TrimSuffix(strings.Repeat(`{"name":"part","number":1},`, 10), ",") + `]}`},
}

const widgets = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.bench.example.com"},
"spec":{"group":"bench.example.com","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},"versions":[{"name":"v1","served":true,"storage":true,
"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer","minimum":0},"text":{"type":"string"},
"parts":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"number":{"type":"integer"}}}}}}}}}}]}}`

// BenchmarkKubeAPIServerComparison sends the same requests to a kube-apiserver and to a workspace, in one run, on one
// etcd.
func BenchmarkKubeAPIServerComparison(b *testing.B) {
	recordDuration(b)
	for range b.N {
		for _, delay := range etcdDelays {
			compareServers(b, delay)
		}
	}
}

// compareServers sends the requests of a comparison, with an etcd whose responses are delayed.
func compareServers(b *testing.B, delay time.Duration) {
	b.Helper()
	servers := startServers(b, delay)
	for _, p := range servers {
		p.mustSend(b, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgets)
		eventually(b, "widgets are served", func(context.Context) error { return p.checkServed(loads[1].collection) })
	}
	for _, l := range loads {
		results := map[string]map[string][]float64{}
		add := func(p *apiServer, what string, value float64) {
			if results[what] == nil {
				results[what] = map[string][]float64{}
			}
			results[what][p.name] = append(results[what][p.name], value)
		}
		for i := range repetitions {
			for _, p := range rotate(servers, i) {
				run := fmt.Sprint("r", i)
				before := p.heap(b)
				// measure records the rate per second, and the cost of one operation for the server.
				measure := func(what string, n int, rate func() float64) {
					from := p.currentUsage(b)
					overhead := p.currentUsage(b).since(from)
					from = p.currentUsage(b)
					add(p, what, rate())
					cost := p.currentUsage(b).since(from).since(overhead)
					add(p, what+", processor time", cost.processor/float64(n)*1000)
					add(p, what+", allocated", cost.allocated/float64(n)/1024)
				}
				each := func(what string, n int, do func(i int) error) {
					measure(what, n, func() float64 { return p.runParallel(b, n, do) })
				}
				each("create", objects, func(i int) error { return p.create(l, run, i) })
				each("get", objects, func(i int) error {
					return p.send(http.MethodGet, fmt.Sprintf("%s/%s-%d", l.collection, run, i), "")
				})
				each("list", lists, func(int) error { return p.send(http.MethodGet, l.collection+"?resourceVersion=0", "") })
				each("list, consistent", lists, func(int) error { return p.send(http.MethodGet, l.collection, "") })
				each("update", objects, func(i int) error {
					return p.send(http.MethodPatch, fmt.Sprintf("%s/%s-%d", l.collection, run, i), fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, i))
				})
				measure("events to watchers", changes*watchers, func() float64 { return p.watch(b, l, run) })
				add(p, "held bytes per object", (p.heap(b)-before)/float64(objects))
			}
		}
		for _, what := range slices.Sorted(maps.Keys(results)) {
			values := results[what]
			stock, ours := median(values[servers[0].name]), median(values[servers[1].name])
			record(withDelay(l.name+": "+what, delay), ours, figureUnit(what), fmt.Sprintf("stock %.1f; ratio %.2f; medians of %d", stock, ours/stock, repetitions))
		}
	}
}

// rotate returns the servers in rotating order: disk and processors are not idle for the second one.
func rotate(servers []*apiServer, turn int) []*apiServer {
	at := turn % len(servers)
	return slices.Concat(servers[at:], servers[:at])
}

func figureUnit(figure string) string {
	switch {
	case strings.HasPrefix(figure, "held"):
		return "B"
	case strings.HasSuffix(figure, "processor time"):
		return "ms"
	case strings.HasSuffix(figure, "allocated"):
		return "KiB"
	}
	return "1/s"
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// runParallel calls do n times with concurrent writers and returns the rate per second.
func (a *apiServer) runParallel(b *testing.B, n int, do func(i int) error) float64 {
	b.Helper()
	next := make(chan int)
	var group sync.WaitGroup
	begun := time.Now()
	for range writers {
		group.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					b.Errorf("%s: %v", a.name, err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return float64(n) / time.Since(begun).Seconds()
}

func (a *apiServer) create(l load, run string, i int) error {
	return a.send(http.MethodPost, l.collection, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"%s-%d","labels":{"run":%q}},%s}`, l.apiVersion, l.kind, run, i, run, l.payload))
}

// watch opens watches, updates one object repeatedly, and returns the total rate of events per second.
func (a *apiServer) watch(b *testing.B, l load, run string) float64 {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
	defer cancel()
	var open, done sync.WaitGroup
	open.Add(watchers)
	for range watchers {
		done.Go(func() {
			response, err := a.request(ctx, http.MethodGet, l.collection+"?watch=1&resourceVersion=0&labelSelector=watched%3D"+run, "")
			open.Done()
			if err != nil {
				b.Error(err)
				return
			}
			defer response.Body.Close()
			lines := bufio.NewScanner(response.Body)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() && !strings.Contains(lines.Text(), fmt.Sprintf(`"change":"%d"`, changes)) {
			}
			if err := errors.Join(ctx.Err(), lines.Err()); err != nil {
				b.Errorf("the last change was not delivered: %v", err)
			}
		})
	}
	open.Wait()
	begun := time.Now()
	for i := 1; i <= changes; i++ {
		body := fmt.Sprintf(`{"metadata":{"labels":{"watched":%q,"change":"%d"}}}`, run, i)
		if err := a.send(http.MethodPatch, l.collection+"/"+run+"-0", body); err != nil {
			b.Error(err)
		}
	}
	done.Wait()
	return float64(changes*watchers) / time.Since(begun).Seconds()
}

func (a *apiServer) request(ctx context.Context, method, path, body string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, a.config.Host+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", map[bool]string{true: "application/merge-patch+json", false: "application/json"}[method == http.MethodPatch])
	response, err := a.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s %s: %s %s", method, path, response.Status, text)
	}
	return response, nil
}

func (a *apiServer) send(method, path, body string) error {
	response, err := a.request(context.Background(), method, path, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

func (a *apiServer) checkServed(path string) error { return a.send(http.MethodGet, path, "") }

func (a *apiServer) mustSend(b *testing.B, method, path, body string) {
	b.Helper()
	if err := a.send(method, path, body); err != nil {
		b.Fatalf("%s: %v", a.name, err)
	}
}

func newClusterClient(config *rest.Config) (client.Client, error) { return loopback.NewClient(config) }

func keyOf(object client.Object) client.ObjectKey { return client.ObjectKeyFromObject(object) }
