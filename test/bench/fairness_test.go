package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Quiet tenants send one request at a time, each this many a second: reads and creations by turns. A loud one has
// loudWorkers requests under way all the time, from a process of its own: more than is served, which the figures tell.
const (
	quietTenants = 8
	quietRate    = 20
	loudWorkers  = 100
	window       = 4 * time.Second // of one measurement; alone and disturbed ones take turns
)

// fairnessRounds make a 99th percentile the twenty-sixth worst of 2,560 requests. That of a few hundred differs by a factor
// of two from run to run.
var fairnessRounds = max(1, scaled(80)/10)

// pressure is what the clients of a loud tenant do.
type pressure struct {
	Name   string
	Method string
	Anew   bool // with a connection for each request
}

// BenchmarkFairness measures the requests of some tenants by themselves, beside one that asks for more than a hundred
// times as much as each of them, and beside one that does the same to another shard with another etcd on the same machine. The
// last is what sharing processors costs, whoever is fair; what the loud neighbour costs beyond that is the shard's doing.
//
// By themselves they are measured on an idle machine, and on one whose processors are kept busy by a program that yields
// to everybody: a virtual machine's processors are given to others while they sleep, and taken from it while they do not.
//
// Shards, etcds and the loud tenant are processes of their own. Clients are elsewhere in life, so they must not wait for
// processors here, nor be waited for: who measures goes before shards and etcds, the loud one gets what nobody else wants.
// A load has begun when it is measured: clients have their connections. What connecting costs others is a load of its own.
func BenchmarkFairness(b *testing.B) {
	timed(b)
	recordGaps(b)
	putClientFirst(b)
	for range b.N {
		shard := startShard(b, startEtcd(b))
		var quiet tenants
		for i := range quietTenants {
			quiet = append(quiet, newTenant(b, shard, fmt.Sprintf("quiet-%d", i)))
		}
		loud := newTenant(b, shard, "loud")
		elsewhere := newTenant(b, startShard(b, startEtcd(b)), "loud")
		for _, pressure := range []pressure{{Name: "reads", Method: http.MethodGet}, {Name: "writes", Method: http.MethodPost}, {Name: "connections", Method: http.MethodGet, Anew: true}} {
			quiet.measure(b, window/4) // connections and caches
			var f fairness
			for range fairnessRounds {
				f.alone.add(quiet.measure(b, window))
				stop := keepBusy(b)
				f.awake.add(quiet.measure(b, window))
				stop()
				f.beside.measure(b, quiet, loud, pressure)
				f.apart.measure(b, quiet, elsewhere, pressure)
			}
			f.record(pressure.Name)
		}
	}
}

// fairness is how quiet tenants fare without a load and with one.
type fairness struct {
	alone, awake  samples // on an idle machine, and on one whose processors are busy with nothing
	beside, apart disturbed
}

// disturbed is how they fare beside a load, and how much of that is served and refused, in requests a second and
// summed over all rounds.
type disturbed struct {
	samples
	served, refused float64
}

func (d *disturbed) measure(b *testing.B, quiet tenants, loud *tenant, by pressure) {
	b.Helper()
	stop := loud.shout(b, by)
	d.add(quiet.measure(b, window))
	served, refused := stop()
	d.served, d.refused = d.served+served, d.refused+refused
}

func (f *fairness) record(does string) {
	rounds := float64(fairnessRounds)
	against := fmt.Sprintf("beside %d %s of another workspace at once: %.0f/s served, %.0f/s refused; on another shard %.0f/s served",
		loudWorkers, does, f.beside.served/rounds, f.beside.refused/rounds, f.apart.served/rounds)
	for _, of := range []struct {
		name                        string
		alone, awake, beside, apart []time.Duration
	}{{"get", f.alone.reads, f.awake.reads, f.beside.reads, f.apart.reads}, {"create", f.alone.writes, f.awake.writes, f.beside.writes, f.apart.writes}} {
		for _, q := range []float64{0.5, 0.9, 0.99} {
			at := func(of []time.Duration) float64 { return milliseconds(quantile(of, q)) }
			after := at(of.beside)
			than := func(of []time.Duration) string { return fmt.Sprintf("%.2f ms, %+.0f %%", at(of), 100*(after/at(of)-1)) }
			record(fmt.Sprintf("quiet tenants' %s p%.0f beside %s", of.name, q*100, does), after, "ms",
				fmt.Sprintf("%d requests; alone %s (goal for p99 +20 %%); alone on busy processors %s; if they are on another shard of the machine %s; %s",
					len(of.beside), than(of.alone), than(of.awake), than(of.apart), against))
		}
	}
}

type samples struct{ reads, writes []time.Duration }

func (s *samples) add(more samples) {
	s.reads, s.writes = append(s.reads, more.reads...), append(s.writes, more.writes...)
}

// tenant is an administrator of one workspace, with connections of its own.
type tenant struct {
	client *http.Client
	access access
	serial atomic.Int64
}

// access is what a tenant's process needs to know.
type access struct {
	URL, Token string
	CA         []byte
	Pressure   pressure // of a loud one
}

func newTenant(b *testing.B, shard *peer, workspace string) *tenant {
	b.Helper()
	cluster := newWorkspace(b, shard.base, "root", workspace)
	t := tenantOf(access{URL: shard.base.Host + "/clusters/" + cluster + "/api/v1/namespaces/default/configmaps", Token: shard.admin.BearerToken, CA: shard.admin.CAData})
	b.Cleanup(t.client.CloseIdleConnections)
	eventually(b, "what is read is created", func(ctx context.Context) error {
		code, err := t.do(ctx, http.MethodPost, "read")
		if err == nil && code != http.StatusCreated && code != http.StatusConflict {
			err = fmt.Errorf("code %d", code)
		}
		return err
	})
	return t
}

func tenantOf(a access) *tenant {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.CA)
	return &tenant{access: a, client: &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: loudWorkers, ForceAttemptHTTP2: false, DisableKeepAlives: a.Pressure.Anew,
	}}}
}

// do reads or creates an object.
func (t *tenant) do(ctx context.Context, method, name string) (int, error) {
	url, body := t.access.URL, ""
	if method == http.MethodPost {
		body = fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"a":"b"}}`, name)
	} else {
		url += "/" + name
	}
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+t.access.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := t.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// tenants send requests beside each other.
type tenants []*tenant

// measure lets each of them read and create in turn, at a steady rate, one after the other.
func (all tenants) measure(b *testing.B, howLong time.Duration) samples {
	b.Helper()
	const interval = time.Second / quietRate
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var mu sync.Mutex
	var together samples
	var working sync.WaitGroup
	for i, t := range all {
		working.Go(func() {
			time.Sleep(interval * time.Duration(i) / time.Duration(len(all)))
			s, err := t.work(ctx, interval, howLong)
			if err != nil {
				b.Error(err)
				cancel()
			}
			mu.Lock()
			defer mu.Unlock()
			together.add(s)
		})
	}
	working.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return together
}

// work reads and creates in turn until the time is over.
func (t *tenant) work(ctx context.Context, interval, howLong time.Duration) (samples, error) {
	var s samples
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for end := time.Now().Add(howLong); time.Now().Before(end) && ctx.Err() == nil; {
		<-tick.C
		begun := time.Now()
		code, err := t.do(ctx, http.MethodGet, "read")
		if err != nil || code != http.StatusOK {
			return s, fmt.Errorf("a quiet tenant's read: %d, %v", code, err)
		}
		s.reads = append(s.reads, time.Since(begun))
		<-tick.C
		begun = time.Now()
		code, err = t.do(ctx, http.MethodPost, fmt.Sprintf("x%d-%d", begun.UnixNano(), t.serial.Add(1)))
		if err != nil || code != http.StatusCreated {
			return s, fmt.Errorf("a quiet tenant's write: %d, %v", code, err)
		}
		s.writes = append(s.writes, time.Since(begun))
	}
	return s, nil
}
