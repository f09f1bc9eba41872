package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// observation is the resource usage at one moment: this process (shard and client), its metrics, and etcd.
type observation struct {
	processUsage
	etcdUsage
	series int
	// requests counts the requests that the shard has served, without watches, etcdRequests those of its
	// storages to etcd: several creations that share a transaction count one each, while the revision of etcd counts transactions.
	requests, etcdRequests float64
}

func observe(b *testing.B, shard *shardtesting.Shard, etcd *etcdServer) observation {
	b.Helper()
	o := observation{processUsage: measureProcess(), etcdUsage: etcd.measure(b)}
	page := getRaw(b, shard.Masters(b), "/metrics")
	o.series = series(page)
	o.requests = total(b, page, "apiserver_request_total", func(labels string) bool { return !strings.Contains(labels, `verb="WATCH"`) })
	o.etcdRequests = total(b, page, "etcd_requests_total", func(string) bool { return true })
	writeProfile(b, page)
	return o
}

// writeProfile writes a heap profile, the goroutines and the metrics to the directory named by BENCH_PROFILES, if set.
func writeProfile(b *testing.B, metrics []byte) {
	b.Helper()
	directory := os.Getenv("BENCH_PROFILES")
	if directory == "" {
		return
	}
	name := fmt.Sprintf("%s-%d.", b.Name(), time.Now().UnixMilli())
	for _, kind := range []string{"heap", "goroutine"} {
		file, err := os.Create(filepath.Join(directory, name+kind))
		if err != nil {
			b.Fatal(err)
		}
		if err := errors.Join(pprof.Lookup(kind).WriteTo(file, 0), file.Close()); err != nil {
			b.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(directory, name+"metrics"), metrics, 0o600); err != nil {
		b.Fatal(err)
	}
}

// recordCost records the cost of n workspaces, given an observation without them.
func (o observation) recordCost(after observation, n int) {
	per := func(a, b int64) float64 { return float64(a-b) / float64(n) }
	suffix := fmt.Sprintf(", %d workspaces", n)
	record("heap per empty workspace"+suffix, per(int64(after.heapBytes), int64(o.heapBytes))/1024, "KiB", "goal 64 KiB; shard and client with the event history of watch caches, without etcd")
	record("total heap"+suffix, float64(after.heapBytes)/(1<<20), "MiB", fmt.Sprintf("%.1f MiB without", float64(o.heapBytes)/(1<<20)))
	record("goroutines"+suffix, float64(after.goroutines), "", fmt.Sprintf("goal: unchanged; %d without", o.goroutines))
	record("metric lines"+suffix, float64(after.series), "", fmt.Sprintf("goal: unchanged; %d without", o.series))
	record("etcd keys per empty workspace"+suffix, per(after.keys, o.keys), "", "")
	record("etcd bytes per empty workspace"+suffix, per(after.bytes, o.bytes)/1024, "KiB", "database in use, without history")
	record("etcd writes per workspace created"+suffix, per(after.writes, o.writes), "", "revisions")
	record("requests per workspace created"+suffix, (after.requests-o.requests)/float64(n), "", "one of them is the client's; without watches")
	record("requests to etcd per workspace created"+suffix, (after.etcdRequests-o.etcdRequests)/float64(n), "", "reads and writes of storages; writes of several objects can be one transaction, see etcd writes")
}

// total sums the series of a metric on a /metrics page whose labels match.
func total(b *testing.B, page []byte, metric string, matches func(labels string) bool) float64 {
	b.Helper()
	var sum float64
	for line := range strings.Lines(string(page)) {
		rest, found := strings.CutPrefix(line, metric+"{")
		labels, value, complete := strings.Cut(rest, "} ")
		if !found || !complete || !matches(labels) {
			continue
		}
		number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			b.Fatalf("metric %s: %v", metric, err)
		}
		sum += number
	}
	if sum == 0 {
		b.Fatalf("metric %s has no series", metric)
	}
	return sum
}

// series counts the series of a /metrics page.
func series(page []byte) int {
	lines := 0
	for line := range bytes.Lines(page) {
		if line[0] != '#' {
			lines++
		}
	}
	return lines
}

// getRaw reads a path of a server.
func getRaw(b *testing.B, config *rest.Config, path string) []byte {
	b.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		b.Fatal(err)
	}
	unversioned := rest.CopyConfig(config)
	unversioned.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	restClient, err := rest.UnversionedRESTClientForConfigAndClient(unversioned, httpClient)
	if err != nil {
		b.Fatal(err)
	}
	body, err := restClient.Get().AbsPath(path).DoRaw(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	return body
}
