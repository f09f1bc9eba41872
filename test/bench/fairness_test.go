package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// Quiet tenants send one request at a time at a fixed rate per second, alternating reads and creations. A noisy tenant
// keeps noisyWorkers requests in flight from a separate process, which is more than processors serve at once: the
// figures show how many the server refuses.
const (
	quietTenants = 8
	quietRate    = 20
	noisyWorkers = 100
	window       = 4 * time.Second // of one measurement; measurements with and without load alternate
)

// fairnessRounds provides enough samples for a stable 99th percentile.
var fairnessRounds = max(1, scaled(80)/10)

// loadProfile is the load of a noisy tenant.
type loadProfile struct {
	Name           string
	Method         string
	NewConnections bool // with a new connection for each request
	Workers        int  // concurrent requests; noisyWorkers if 0
}

// BenchmarkFairness measures the requests of quiet tenants without load, with a noisy tenant that sends more than a
// hundred times as many requests as each of them, and with a noisy tenant on another shard with another etcd on the
// same machine. The last is the cost of shared processors, however fair the shard is; the difference between the last two
// is the cost of sharing the shard. The same load on a kube-apiserver, with users in place of workspaces, is the cost that
// stock priority and fairness leaves.
//
// The benchmark measures the baseline on an idle machine, and on one whose processors a program keeps busy at the lowest
// priority: the host of a virtual machine gives idle processors to other machines, and takes busy ones away.
//
// Shards, etcds and the noisy tenant run in separate processes. Real clients run on other machines, so clients here
// must neither wait for processors nor delay the servers: the measuring process has a higher priority than shards and
// etcds, the noisy one has the lowest. A measurement starts once the clients of a load are connected. New connections
// are a separate load.
func BenchmarkFairness(b *testing.B) {
	recordDuration(b)
	recordGaps(b)
	lowerServerPriority(b)
	for range b.N {
		reads, writes := loadProfile{Name: "reads", Method: http.MethodGet}, loadProfile{Name: "writes", Method: http.MethodPost}
		connections := loadProfile{Name: "connections", Method: http.MethodGet, NewConnections: true}
		measureFairness(b, 0, reads, writes, connections)
		measureFairness(b, etcdDelays[1], writes) // the others do not wait for etcd
	}
}

// measureFairness measures with etcds whose responses are delayed.
func measureFairness(b *testing.B, delay time.Duration, profiles ...loadProfile) {
	b.Helper()
	shard := startShard(b, startEtcd(b).delayed(b, delay))
	var quiet tenants
	for i := range quietTenants {
		quiet = append(quiet, newTenant(b, shard, fmt.Sprintf("quiet-%d", i)))
	}
	noisy := newTenant(b, shard, "noisy")
	noisyOtherShard := newTenant(b, startShard(b, startEtcd(b).delayed(b, delay)), "noisy")
	stock := startStock(b, startEtcd(b).delayed(b, delay))
	var quietStock tenants
	for i := range quietTenants {
		quietStock = append(quietStock, newAdministrator(b, stock, fmt.Sprintf("quiet-%d", i)))
	}
	noisyStock := newAdministrator(b, stock, "noisy")
	for _, profile := range profiles {
		quiet.measure(b, window/4) // warms up connections and caches
		quietStock.measure(b, window/4)
		var f fairness
		for range fairnessRounds {
			f.idle.add(quiet.measure(b, window))
			stop := keepBusy(b)
			f.busy.add(quiet.measure(b, window))
			stop()
			f.sameShard.measure(b, quiet, noisy, profile)
			f.otherShard.measure(b, quiet, noisyOtherShard, profile)
			f.stock.measure(b, quietStock, noisyStock, profile)
		}
		f.record(withDelay(profile.Name, delay))
	}
}

// fairness holds the latencies of quiet tenants without a load and with each load.
type fairness struct {
	idle, busy                   samples // on an idle machine, and on one with busy processors
	sameShard, otherShard, stock loadedSamples
}

// loadedSamples holds the latencies under a load, and how many requests of that load the server answers and refuses per second,
// summed over all rounds.
type loadedSamples struct {
	samples
	served, refused float64
}

func (l *loadedSamples) measure(b *testing.B, quiet tenants, noisy *tenant, profile loadProfile) {
	b.Helper()
	stop := noisy.startLoad(b, profile)
	l.add(quiet.measure(b, window))
	served, refused := stop()
	l.served, l.refused = l.served+served, l.refused+refused
}

func (f *fairness) record(loadName string) {
	rounds := float64(fairnessRounds)
	against := fmt.Sprintf("with %d concurrent %s of another workspace: %.0f/s served, %.0f/s refused; on another shard %.0f/s served; stock %.0f/s served",
		noisyWorkers, loadName, f.sameShard.served/rounds, f.sameShard.refused/rounds, f.otherShard.served/rounds, f.stock.served/rounds)
	for _, of := range []struct {
		name                                     string
		idle, busy, sameShard, otherShard, stock []time.Duration
	}{
		{"get", f.idle.reads, f.busy.reads, f.sameShard.reads, f.otherShard.reads, f.stock.reads},
		{"create", f.idle.writes, f.busy.writes, f.sameShard.writes, f.otherShard.writes, f.stock.writes},
	} {
		for _, q := range []float64{0.5, 0.9, 0.99} {
			at := func(of []time.Duration) float64 { return milliseconds(quantile(of, q)) }
			loaded := at(of.sameShard)
			compare := func(of []time.Duration) string { return fmt.Sprintf("%.2f ms, ratio %.2f", at(of), loaded/at(of)) }
			record(fmt.Sprintf("quiet tenants' %s p%.0f under load of %s", of.name, q*100, loadName), loaded, "ms",
				fmt.Sprintf("%d requests; with the load on another shard of the machine %s (goal for p99 1.5); the same on stock kube-apiserver %s; without load %s; without load on busy processors %s; %s",
					len(of.sameShard), compare(of.otherShard), compare(of.stock), compare(of.idle), compare(of.busy), against))
		}
	}
}

type samples struct{ reads, writes []time.Duration }

func (s *samples) add(more samples) {
	s.reads, s.writes = append(s.reads, more.reads...), append(s.writes, more.writes...)
}

// tenant is a user who is the administrator of one workspace, with connections of its own.
type tenant struct {
	client *http.Client
	config tenantConfig
	serial atomic.Int64
}

// tenantConfig is the configuration of a tenant's process.
type tenantConfig struct {
	URL, Token string
	CA         []byte
	Load       loadProfile // of a noisy tenant
}

// newTenant returns a tenant with a workspace of its own.
func newTenant(b *testing.B, shard *apiServer, name string) *tenant {
	b.Helper()
	own := *shard
	own.config = shardtesting.At(shard.base, newWorkspace(b, shard.base, "root", name))
	return newAdministrator(b, &own, name)
}

// newAdministrator returns an administrator of a kube-apiserver, or of the workspace at the URL of the configuration.
func newAdministrator(b *testing.B, server *apiServer, name string) *tenant {
	b.Helper()
	server.mustSend(b, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1",
		"kind":"ClusterRoleBinding","metadata":{"name":%[1]q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":%[1]q}]}`, name))
	ca := server.config.CAData
	if len(ca) == 0 {
		var err error
		if ca, err = os.ReadFile(server.config.CAFile); err != nil {
			b.Fatal(err)
		}
	}
	t := tenantFromConfig(tenantConfig{URL: server.config.Host + "/api/v1/namespaces/default/configmaps", Token: name, CA: ca})
	b.Cleanup(t.client.CloseIdleConnections)
	eventually(b, "the read object is created", func(ctx context.Context) error {
		code, err := t.do(ctx, http.MethodPost, "read")
		if err == nil && code != http.StatusCreated && code != http.StatusConflict {
			err = fmt.Errorf("code %d", code)
		}
		return err
	})
	return t
}

// tokenFile writes a token file with the users of this benchmark. The token of a user is its name.
func tokenFile(b *testing.B) string {
	b.Helper()
	names := []string{"noisy", "writer"}
	for i := range quietTenants {
		names = append(names, fmt.Sprintf("quiet-%d", i))
	}
	var lines strings.Builder
	for _, name := range names {
		fmt.Fprintf(&lines, "%[1]s,%[1]s,%[1]s\n", name)
	}
	file := filepath.Join(b.TempDir(), "tokens.csv")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	return file
}

func tenantFromConfig(a tenantConfig) *tenant {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.CA)
	return &tenant{config: a, client: &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: noisyWorkers, ForceAttemptHTTP2: false, DisableKeepAlives: a.Load.NewConnections,
	}}}
}

// do reads or creates an object.
func (t *tenant) do(ctx context.Context, method, name string) (int, error) {
	url, body := t.config.URL, ""
	if method == http.MethodPost {
		body = fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"a":"b"}}`, name)
	} else {
		url += "/" + name
	}
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+t.config.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := t.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// tenants send requests concurrently.
type tenants []*tenant

// measure has each tenant alternate reads and creations at a steady rate, one request at a time.
func (te tenants) measure(b *testing.B, howLong time.Duration) samples {
	b.Helper()
	const interval = time.Second / quietRate
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var mu sync.Mutex
	var combined samples
	var workers sync.WaitGroup
	for i, t := range te {
		workers.Go(func() {
			time.Sleep(interval * time.Duration(i) / time.Duration(len(te)))
			s, err := t.work(ctx, interval, howLong)
			if err != nil {
				b.Error(err)
				cancel()
			}
			mu.Lock()
			defer mu.Unlock()
			combined.add(s)
		})
	}
	workers.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return combined
}

// work alternates reads and creations for the duration.
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
