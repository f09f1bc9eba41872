package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// A quiet tenant sends one request at a time, this many a second; a loud one has loudWorkers requests under way all the
// time.
const (
	quietRate   = 40
	loudWorkers = 100
	window      = 4 * time.Second // of one measurement; alone and disturbed ones take turns
)

var fairnessRounds = max(1, scaled(40)/10)

// BenchmarkFairness measures the requests of a tenant by itself and beside one that loads the shard a hundred times as
// much. Clients and shard share the processors of this process, so part of what the loud one moves is not the shard's.
func BenchmarkFairness(b *testing.B) {
	for range b.N {
		shard := shardtesting.Start(b)
		for _, name := range []string{"quiet", "loud"} {
			shard.NewWorkspace(b, "root", name)
		}
		for kind, loud := range map[string]string{"reads": http.MethodGet, "writes": http.MethodPost} {
			quiet, noise := newTenant(b, shard, "root:quiet"), newTenant(b, shard, "root:loud")
			quiet.measure(b, window/4) // connections and caches
			alone, beside := samples{}, samples{}
			var served, refused int64
			for range fairnessRounds {
				alone.add(quiet.measure(b, window))
				stop := noise.shout(loud, loudWorkers)
				beside.add(quiet.measure(b, window))
				s, r := stop()
				served, refused = served+s, refused+r
			}
			against := fmt.Sprintf("beside %d clients of another workspace that %s as fast as they can: %.0f/s served, %.0f/s refused", loudWorkers,
				map[string]string{"reads": "read", "writes": "write"}[kind],
				float64(served)/(window.Seconds()*float64(fairnessRounds)), float64(refused)/(window.Seconds()*float64(fairnessRounds)))
			for _, of := range []struct {
				name          string
				alone, beside []time.Duration
			}{{"get", alone.reads, beside.reads}, {"create", alone.writes, beside.writes}} {
				for _, q := range []float64{0.5, 0.99} {
					before, after := milliseconds(quantile(of.alone, q)), milliseconds(quantile(of.beside, q))
					name := fmt.Sprintf("quiet tenant's %s p%.0f beside %s", of.name, q*100, kind)
					record(name, after, "ms", fmt.Sprintf("%.2f ms alone, %+.0f %%; goal for p99 +20 %%; %s", before, 100*(after/before-1), against))
				}
			}
		}
		stop(b, shard)
	}
}

type samples struct{ reads, writes []time.Duration }

func (s *samples) add(more samples) {
	s.reads, s.writes = append(s.reads, more.reads...), append(s.writes, more.writes...)
}

// tenant is an administrator of one workspace, with connections of its own.
type tenant struct {
	client *http.Client
	base   string
	token  string
	serial atomic.Int64
}

func newTenant(b *testing.B, shard *shardtesting.Shard, workspace string) *tenant {
	b.Helper()
	config := rest.CopyConfig(shard.Admin(b))
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		b.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: tls, MaxIdleConnsPerHost: loudWorkers, ForceAttemptHTTP2: false}
	b.Cleanup(transport.CloseIdleConnections)
	t := &tenant{client: &http.Client{Transport: transport}, base: config.Host + "/clusters/" + workspace + "/api/v1/namespaces/default/configmaps", token: config.BearerToken}
	if code, err := t.do(b.Context(), http.MethodPost, "read"); err != nil || (code != http.StatusCreated && code != http.StatusConflict) {
		b.Fatalf("creating what is read: %d, %v", code, err)
	}
	return t
}

// do reads or creates an object.
func (t *tenant) do(ctx context.Context, method, name string) (int, error) {
	url, body := t.base, ""
	if method == http.MethodPost {
		body = fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"a":"b"}}`, name)
	} else {
		url += "/" + name
	}
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+t.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := t.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// measure reads and creates in turn, at a steady rate.
func (t *tenant) measure(b *testing.B, howLong time.Duration) samples {
	b.Helper()
	var s samples
	tick := time.NewTicker(time.Second / quietRate)
	defer tick.Stop()
	for end := time.Now().Add(howLong); time.Now().Before(end); {
		<-tick.C
		begun := time.Now()
		code, err := t.do(b.Context(), http.MethodGet, "read")
		if err != nil || code != http.StatusOK {
			b.Fatalf("the quiet tenant's read: %d, %v", code, err)
		}
		s.reads = append(s.reads, time.Since(begun))
		<-tick.C
		begun = time.Now()
		code, err = t.do(b.Context(), http.MethodPost, fmt.Sprintf("x%d-%d", begun.UnixNano(), t.serial.Add(1)))
		if err != nil || code != http.StatusCreated {
			b.Fatalf("the quiet tenant's write: %d, %v", code, err)
		}
		s.writes = append(s.writes, time.Since(begun))
	}
	return s
}

// shout sends requests from many clients until it is stopped, which returns how many were served and how many refused.
func (t *tenant) shout(method string, workers int) (stop func() (served, refused int64)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var served, refused atomic.Int64
	for range workers {
		running.Go(func() {
			for ctx.Err() == nil {
				name := "read"
				if method == http.MethodPost {
					name = fmt.Sprintf("y%d-%d", time.Now().UnixNano(), t.serial.Add(1))
				}
				code, err := t.do(ctx, method, name)
				switch {
				case errors.Is(err, context.Canceled):
				case err == nil && slices.Contains([]int{http.StatusOK, http.StatusCreated}, code):
					served.Add(1)
				default:
					refused.Add(1)
				}
			}
		})
	}
	return func() (int64, int64) {
		cancel()
		running.Wait()
		return served.Load(), refused.Load()
	}
}
