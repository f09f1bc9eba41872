package process

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// Series of the usage of a workspace, without the month.
const (
	gets, lists, writes   = `requests_total{class="get"`, `requests_total{class="list"`, `requests_total{class="write"`
	watches, others       = `requests_total{class="watch"`, `requests_total{class="other"`
	received, sent        = "received_bytes_total", "sent_bytes_total"
	watchSeconds          = "watch_seconds_total"
	usagePrefix           = "atoll_usage_"
	meterClients          = 4
	watchTimeout          = time.Second
	shortTotal, longTotal = 2_000, 100_000
)

// meter sends requests to a workspace of its own, and counts them independently of the shard. Of the requests that read the usage, it knows
// only that they are counted soon.
type meter struct {
	cluster string
	// total is how many requests a test sends, without watches and those that read the usage.
	total int

	mu sync.Mutex
	// counted is what the usage has to have, polled what it may have in addition, because reads of the usage count, too.
	counted, polled map[string]float64
	// atRisk is the part of counted that a kill may have lost.
	atRisk map[string]float64
	// watched is the longest time that the watches can have lasted.
	watched time.Duration
}

// newMeter creates the workspace, and waits until all replicas know it: they count nothing for one that they do not know.
func newMeter(t *testing.T, replicas ...*shard) *meter {
	t.Helper()
	m := &meter{cluster: newWorkspace(t, replicas[0], "metered"), total: shortTotal, counted: map[string]float64{}, polled: map[string]float64{}, atRisk: map[string]float64{}}
	if os.Getenv("ATOLL_FAULTS") == "full" { // `make faults`
		m.total = longTotal
	}
	for _, replica := range replicas {
		config := clusterConfig(replica.config(t, "shard-base"), "*") // does not count
		shardtesting.Eventually(t, "a replica knows the workspace", func(context.Context) error {
			response, all := shardtesting.Send(t, config, http.MethodGet, "/apis/core.kcp.io/v1alpha1/logicalclusters?resourceVersion=0", "")
			if !strings.Contains(all, `"`+m.cluster+`"`) {
				return fmt.Errorf("%d, without %s", response.StatusCode, m.cluster)
			}
			return nil
		})
	}
	return m
}

// metered is one kind of request, and what it counts as.
type metered struct{ class, method, path, body string }

// meteredKinds change nothing in the workspace.
var meteredKinds = []metered{
	{gets, http.MethodGet, "/api/v1/namespaces/default/configmaps/missing", ""},
	{lists, http.MethodGet, "/api/v1/namespaces/default/configmaps?limit=1", ""},
	{writes, http.MethodDelete, "/api/v1/namespaces/default/configmaps/missing", `{"apiVersion":"v1","kind":"DeleteOptions"}`},
	{writes, http.MethodPost, "/api/v1/namespaces/default/configmaps?dryRun=All", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"tried"}}`},
	{others, http.MethodGet, "/api", ""},
}

// aWatch ends after watchTimeout.
var aWatch = metered{watches, http.MethodGet, "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=1", ""}

// send sends a number of requests to replicas in turn, and a watch for each client.
func (m *meter) send(t *testing.T, count int, replicas ...*shard) {
	t.Helper()
	var watching sync.WaitGroup
	for i := range meterClients {
		config := m.config(t, replicas[i%len(replicas)])
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		watching.Go(func() {
			opened := time.Now()
			if _, err := m.do(t.Context(), client, config.Host, aWatch, m.counted); err != nil {
				t.Error(err)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			m.counted[watchSeconds] += watchTimeout.Seconds()
			m.watched += time.Since(opened)
		})
	}
	m.sendShort(t, count, replicas...)
	watching.Wait()
}

// sendBeforeKill sends a number of requests to a replica that is killed then, and loses those that it has not written.
func (m *meter) sendBeforeKill(t *testing.T, count int, replica *shard) {
	t.Helper()
	before := maps.Clone(m.counted)
	m.sendShort(t, count, replica)
	for series, after := range m.counted {
		m.atRisk[series] += after - before[series]
	}
}

func (m *meter) sendShort(t *testing.T, count int, replicas ...*shard) {
	t.Helper()
	var clients sync.WaitGroup
	began := time.Now()
	for i := range meterClients {
		config := m.config(t, replicas[i%len(replicas)])
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		clients.Go(func() {
			for n := i; n < count; n += meterClients {
				if _, err := m.do(t.Context(), client, config.Host, meteredKinds[n/meterClients%len(meteredKinds)], m.counted); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	clients.Wait()
	t.Logf("%d requests in %s", count, time.Since(began).Round(time.Millisecond))
}

func (m *meter) config(t *testing.T, replica *shard) *rest.Config {
	t.Helper()
	config := clusterConfig(replica.config(t, "shard-base"), m.cluster)
	config.DisableCompression, config.Timeout = true, time.Minute // bytes are those that the client reads
	return config
}

// do sends a request, and adds it to a count when it has the whole answer, which it returns.
func (m *meter) do(ctx context.Context, client *http.Client, host string, kind metered, to map[string]float64) (string, error) {
	req, err := http.NewRequestWithContext(ctx, kind.method, host+kind.path, bytes.NewReader([]byte(kind.body)))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	response, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode >= http.StatusBadRequest && response.StatusCode != http.StatusNotFound {
		return "", fmt.Errorf("%s %s: %s: %s", kind.method, kind.path, response.Status, body)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	to[kind.class]++
	to[received] += float64(len(kind.body))
	to[sent] += float64(len(body))
	return string(body), nil
}

// requests returns how many requests were counted, without watches and reads of the usage.
func (m *meter) requests() int {
	return int(m.counted[gets] + m.counted[lists] + m.counted[writes] + m.counted[others])
}

// read returns the usage of the workspace, in the sum of all months: a test may run while one ends.
func (m *meter) read(t *testing.T, replica *shard) (map[string]float64, error) {
	config := m.config(t, replica)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	text, err := m.do(t.Context(), client, config.Host, metered{others, http.MethodGet, "/metrics", ""}, m.polled)
	if err != nil {
		return nil, err
	}
	found := map[string]float64{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || !strings.HasPrefix(name, usagePrefix) {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		series, _, _ := strings.Cut(strings.TrimPrefix(name, usagePrefix), "month=")
		found[strings.TrimRight(series, "{,")] += number
	}
	return found, nil
}

// limits returns what the usage has at least and at most.
func (m *meter) limits() (least, most map[string]float64) {
	least, most = map[string]float64{}, map[string]float64{}
	for _, series := range []string{gets, lists, writes, watches, others, received, sent, watchSeconds} {
		least[series], most[series] = m.counted[series]-m.atRisk[series], m.counted[series]+m.polled[series]
	}
	most[watchSeconds] = m.watched.Seconds()
	return least, most
}

// expect waits until the usage has all that was sent, and fails if it has more.
func (m *meter) expect(t *testing.T, replica *shard) {
	t.Helper()
	var got map[string]float64
	shardtesting.Eventually(t, "the usage of all requests", func(context.Context) (err error) {
		if got, err = m.read(t, replica); err != nil {
			return err
		}
		least, _ := m.limits()
		for series, want := range least {
			if got[series] < want {
				return fmt.Errorf("%s is %v, want at least %v", series, got[series], want)
			}
		}
		return nil
	})
	_, most := m.limits()
	for series, want := range most {
		if got[series] > want {
			t.Errorf("%s is %v, want at most %v: something counts twice", series, got[series], want)
		}
	}
	t.Logf("the client has counted %v, of which a kill may have lost %v, and in addition reads of the usage %v; the usage is %v", m.counted, m.atRisk, m.polled, got)
}
