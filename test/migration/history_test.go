package migration

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/shardserver/loopback"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// requestTimeout bounds a request of a writer, so that a server that has been killed does not hold it.
const requestTimeout = 5 * time.Second

// writeInterval is the pause between two writes of a writer.
const writeInterval = 50 * time.Millisecond

// history records what a logical cluster has acknowledged while it moves: to a client of the front proxy that counts in a few objects, and
// to clients that ask each shard directly, whether or not it has the logical cluster.
type history struct {
	counters []*counted
	stop     func()

	mu sync.Mutex
	// created are the objects that a shard has acknowledged to a client without front proxy.
	created []string
	// refused and failed are the answers of the front proxy: 503 to writes, and other errors.
	refused, failed int
	last            error
	// violations are reads of the counting client that contradict what it was told before.
	violations []string
	// refusedSince is the first refusal after an accepted write; pause is the longest time from one to the next accepted write.
	refusedSince time.Time
	pause        time.Duration
}

// counted is an object whose value one client counts up.
type counted struct {
	name string
	// acknowledged is the value of the last update that succeeded, attempted that of the last one that may have.
	acknowledged, attempted int
}

// observe starts writers, which end with the test.
func (e *env) observe(t *testing.T, path, cluster string) *history {
	t.Helper()
	h := &history{}
	config := e.Admin(t, path)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &answers{h, next} })
	c, err := client.New(config, client.Options{Scheme: loopback.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		object := put(t, c, fmt.Sprint("counter-", i))
		h.counters = append(h.counters, &counted{name: object.Name})
	}
	ctx, cancel := context.WithCancel(context.Background())
	var writers sync.WaitGroup
	writers.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			h.count(ctx, c, h.counters[n%len(h.counters)])
			time.Sleep(writeInterval)
		}
	})
	for _, shard := range e.Shards() {
		direct := shardtesting.At(e.Masters(t, shard), cluster)
		direct.Timeout = requestTimeout
		c, err := client.New(direct, client.Options{Scheme: loopback.Scheme, Mapper: c.RESTMapper()})
		if err != nil {
			t.Fatal(err)
		}
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				h.create(ctx, c, fmt.Sprint("direct-", shard, "-", n))
				time.Sleep(writeInterval)
			}
		})
	}
	h.stop = sync.OnceFunc(func() {
		cancel()
		writers.Wait()
	})
	t.Cleanup(h.stop)
	return h
}

// count reads a counted, and counts it up by an update that the server refuses if another one came first.
func (h *history) count(ctx context.Context, c client.Client, counted *counted) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	object := &corev1.ConfigMap{}
	err := c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: counted.name}, object)
	if err == nil {
		value, _ := strconv.Atoi(object.Data["value"])
		h.mu.Lock()
		if value < counted.acknowledged || value > counted.attempted {
			h.violations = append(h.violations, fmt.Sprintf("%s reads %d; %d is acknowledged, and %d attempted", counted.name, value, counted.acknowledged, counted.attempted))
		}
		counted.attempted = value + 1
		h.mu.Unlock()
		object.Data["value"] = strconv.Itoa(value + 1)
		if err = c.Update(ctx, object); err == nil {
			h.mu.Lock()
			counted.acknowledged = value + 1
			if !h.refusedSince.IsZero() {
				h.pause = max(h.pause, time.Since(h.refusedSince))
				h.refusedSince = time.Time{}
			}
			h.mu.Unlock()
			return
		}
	}
	if err != nil && !apierrors.IsConflict(err) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.failed++
		h.last = err
	}
}

// create creates an object at one shard, and remembers it if the shard acknowledges.
func (h *history) create(ctx context.Context, c client.Client, name string) {
	if c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}) == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.created = append(h.created, name)
	}
}

// answers records the refusals that the client retries by itself.
type answers struct {
	h    *history
	next http.RoundTripper
}

func (a *answers) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := a.next.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusServiceUnavailable && request.Method != http.MethodGet {
		a.h.mu.Lock()
		defer a.h.mu.Unlock()
		a.h.refused++
		if a.h.refusedSince.IsZero() {
			a.h.refusedSince = time.Now()
		}
	}
	return response, err
}

func (h *history) refusals() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refused
}

// check waits until writes succeed, and compares all that was acknowledged before with what is stored.
func (h *history) check(t *testing.T, c client.Client) {
	t.Helper()
	h.mu.Lock()
	created := slices.Clone(h.created)
	acknowledged := map[string]int{}
	for _, counted := range h.counters {
		acknowledged[counted.name] = counted.acknowledged
	}
	h.mu.Unlock()
	shardtesting.Eventually(t, "writes succeed", func(context.Context) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, counted := range h.counters {
			if counted.acknowledged <= acknowledged[counted.name] {
				return fmt.Errorf("%s has no write since the last check; %d failed, at last: %v", counted.name, h.failed, h.last)
			}
		}
		return nil
	})
	stored := &corev1.ConfigMapList{}
	if err := c.List(t.Context(), stored, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for i := range stored.Items {
		values[stored.Items[i].Name] = stored.Items[i].Data["value"]
	}
	var lost []string
	for _, name := range created {
		if _, exists := values[name]; !exists {
			lost = append(lost, name)
		}
	}
	for name, want := range acknowledged {
		if value, err := strconv.Atoi(values[name]); err != nil || value < want {
			lost = append(lost, fmt.Sprintf("%s at %d, stored is %q", name, want, values[name]))
		}
	}
	if len(lost) > 0 {
		t.Errorf("%d acknowledged writes are lost: %s", len(lost), strings.Join(lost, ", "))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.violations) > 0 {
		t.Errorf("reads contradict writes: %s", strings.Join(h.violations, "; "))
		h.violations = nil
	}
	t.Logf("%d writes at single shards and %v counted through the front proxy are there; so far %d refusals, the longest pause %s, %d other errors, the last: %v",
		len(created), acknowledged, h.refused, h.pause.Round(time.Millisecond), h.failed, h.last)
}
