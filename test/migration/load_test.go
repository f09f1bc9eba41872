package migration

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

const (
	counter  = "counter"
	interval = 20 * time.Millisecond // between two requests of a client
)

// outcome is what the requests of one client got.
type outcome struct {
	served, unavailable int
	// down is the time from the first request that got 503 to the next that was served, in sum.
	down time.Duration
	// failures are all other answers.
	failures []string

	since time.Time
}

func (o *outcome) add(err error) {
	switch {
	case err == nil:
		o.served++
		if !o.since.IsZero() {
			o.down += time.Since(o.since)
			o.since = time.Time{}
		}
	case apierrors.IsServiceUnavailable(err):
		o.unavailable++
		if o.since.IsZero() {
			o.since = time.Now()
		}
	default:
		o.failures = append(o.failures, err.Error())
	}
}

// load is a reader and a writer of one workspace, which never repeat a request by themselves.
type load struct {
	client         rest.Interface
	reads, writes  outcome
	stop           context.CancelFunc
	running        sync.WaitGroup
	value          int // the last one that was acknowledged
	lost, repeated int
}

func objects(request *rest.Request) *rest.Request {
	return request.MaxRetries(0).Resource("configmaps").Namespace(metav1.NamespaceDefault)
}

// fill creates objects of 2 KiB, and the one that the writer changes.
func fill(t testing.TB, config *rest.Config, count int) {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	client := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	var creators sync.WaitGroup
	names := make(chan string)
	for range 8 {
		creators.Go(func() {
			for name := range names {
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": "0", "filler": strings.Repeat("x", 2<<10)}}
				if _, err := client.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
					t.Errorf("creating %s: %v", name, err)
				}
			}
		})
	}
	for i := range count {
		names <- fmt.Sprint("filler-", i)
	}
	names <- counter
	close(names)
	creators.Wait()
}

func startLoad(t testing.TB, config *rest.Config) *load {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	ctx, stop := context.WithCancel(t.Context())
	l := &load{client: kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient(), stop: stop}
	l.running.Go(func() { l.read(ctx) })
	l.running.Go(func() { l.write(ctx) })
	return l
}

// end stops the load.
func (l *load) end() {
	l.stop()
	l.running.Wait()
}

func (l *load) read(ctx context.Context) {
	for pause(ctx) {
		if err := objects(l.client.Get()).Name("filler-0").Do(context.WithoutCancel(ctx)).Error(); err != nil || ctx.Err() == nil {
			l.reads.add(err)
		}
	}
}

// write increments a counter. After each answer that is no success it reads which value is stored: a refused write must have no
// effect, and an acknowledged one must have had exactly one.
func (l *load) write(ctx context.Context) {
	client := context.WithoutCancel(ctx)
	stored := &corev1.ConfigMap{}
	for pause(ctx) {
		if stored.Name == "" {
			if err := objects(l.client.Get()).Name(counter).Do(client).Into(stored); err != nil {
				stored = &corev1.ConfigMap{}
				continue
			}
			switch value, _ := strconv.Atoi(stored.Data["value"]); {
			case value < l.value:
				l.lost++
			case value > l.value:
				l.repeated++
			}
		}
		stored.Data["value"] = strconv.Itoa(l.value + 1)
		written := &corev1.ConfigMap{}
		err := objects(l.client.Put()).Name(counter).Body(stored).Do(client).Into(written)
		l.writes.add(err)
		if stored = written; err == nil {
			l.value++
		} else {
			stored = &corev1.ConfigMap{}
		}
	}
}

// pause waits for the next request, and reports whether there is one.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(interval):
		return true
	}
}

func (e *env) testLoad(t *testing.T) {
	workspace, c := e.workspace(t, "loaded", installation.Alpha)
	config := e.Admin(t, "root:loaded")
	fill(t, config, 300)
	l := startLoad(t, config)
	for i, shard := range []string{installation.Beta, installation.Alpha} {
		e.moveTo(t, fmt.Sprint("loaded-", i), workspace, c, shard)
	}
	l.end()
	// A version of the origin may be refused as a conflict at the destination, once for each move.
	if len(l.reads.failures) > 0 || len(l.writes.failures) > 2 {
		t.Errorf("reads fail with %q, writes with %q", l.reads.failures, l.writes.failures)
	}
	if l.lost > 0 || l.repeated > 0 || l.writes.served == 0 || l.writes.unavailable == 0 {
		t.Errorf("%d writes were served, %d refused, %d lost, %d done twice", l.writes.served, l.writes.unavailable, l.lost, l.repeated)
	}
	if l.reads.unavailable > l.writes.unavailable {
		t.Errorf("%d of %d reads were refused, and %d writes: reads go on while the rest is copied", l.reads.unavailable, l.reads.served, l.writes.unavailable)
	}
	t.Logf("%d of %d reads and %d of %d writes were refused", l.reads.unavailable, l.reads.served, l.writes.unavailable, l.writes.served)
	stored := &corev1.ConfigMap{}
	if err := objects(l.client.Get()).Name(counter).Do(t.Context()).Into(stored); err != nil || stored.Data["value"] != strconv.Itoa(l.value) {
		t.Errorf("stored is %q (%v), acknowledged was %d", stored.Data["value"], err, l.value)
	}
}

// BenchmarkMove moves workspaces of different sizes under load between two shards, and reports how long writes and reads got 503.
func BenchmarkMove(b *testing.B) {
	e := start(b)
	for _, size := range []int{1000, 10000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			name := fmt.Sprint("size-", size)
			e.NewWorkspace(b, name, "tenant", shardtesting.OnShard(installation.Alpha))
			cluster := e.stored(b, name).Spec.Cluster
			config := e.Admin(b, "root:"+name)
			fill(b, config, size)
			shards, moves := []string{installation.Beta, installation.Alpha}, 0
			var writes, reads time.Duration
			for b.Loop() {
				l := startLoad(b, config)
				migration := fmt.Sprint(name, "-", moves)
				e.move(b, migration, cluster, shards[moves%2])
				e.waitPhase(b, migration, migrationv1alpha1.LogicalClusterMigrationPhaseCompleted)
				l.end()
				writes += l.writes.down
				reads += l.reads.down
				moves++
			}
			b.ReportMetric(float64(writes.Milliseconds())/float64(moves), "refused-writes-ms/op")
			b.ReportMetric(float64(reads.Milliseconds())/float64(moves), "refused-reads-ms/op")
		})
	}
}
