package usage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func exists(context.Context) bool { return true }

func nothingSkipped(*http.Request) bool { return false }

// send sends a request with a verb to a logical cluster.
func send(handler http.Handler, cluster logicalcluster.Name, verb, content string) {
	ctx := logicalcluster.With(context.Background(), cluster)
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: verb != "", Verb: verb})
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(content)))
}

func echo(w http.ResponseWriter, req *http.Request) { _, _ = io.Copy(w, req.Body) }

func TestCounterClassifies(t *testing.T) {
	c := NewCounter("root", exists)
	handler := c.WithCounting(http.HandlerFunc(echo), nothingSkipped)
	for _, verb := range []string{"get", "list", "list", "create", "update", "patch", "delete", "deletecollection", "", "connect", "watch"} {
		send(handler, logicalcluster.Root, verb, "four")
	}
	got := *c.take(time.Now())[logicalcluster.Root]
	got.WatchMilliseconds = 0
	if want := (Counts{Gets: 1, Lists: 2, Writes: 5, Others: 2, Watches: 1, ReceivedBytes: 44, SentBytes: 44}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestLeavingClusterTakesItsWatches: a watch of a logical cluster that has moved away counts once, although it ends later.
func TestLeavingClusterTakesItsWatches(t *testing.T) {
	c := NewCounter("root", exists)
	leaving, staying := logicalcluster.MustParseName("leaving"), logicalcluster.MustParseName("staying")
	started, end := make(chan struct{}), make(chan struct{})
	handler := c.WithCounting(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("four"))
		started <- struct{}{}
		<-end
		_, _ = w.Write([]byte("expired"))
	}), nothingSkipped)
	var watching sync.WaitGroup
	for _, cluster := range []logicalcluster.Name{leaving, staying} {
		watching.Go(func() { send(handler, cluster, "watch", "") })
		<-started
	}
	got := c.takeOne(leaving, time.Now())
	got.WatchMilliseconds = 0
	if want := (Counts{Watches: 1, SentBytes: 4}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	close(end)
	watching.Wait()
	rest := c.take(time.Now())
	if len(rest) != 1 || rest[staying].Watches != 1 || len(c.watches) != 0 {
		t.Errorf("afterwards: got %v and %d watches, want the one that has stayed", rest, len(c.watches))
	}
}

func TestCounterIsBounded(t *testing.T) {
	c := NewCounter("root", exists)
	handler := c.WithCounting(http.HandlerFunc(echo), nothingSkipped)
	for i := range maxClusters + 10 {
		send(handler, logicalcluster.MustParseName(fmt.Sprintf("c%d", i)), "get", "")
	}
	if got := c.uncounted.Load(); got != 10 {
		t.Errorf("%d requests are not counted, want 10", got)
	}
	if len(c.full) != 1 {
		t.Error("no flush is requested")
	}
	if got := len(c.take(time.Now())); got != maxClusters {
		t.Errorf("got %d entries, want %d", got, maxClusters)
	}
	if got := len(c.clusters) + len(c.watches); got != 0 {
		t.Errorf("%d entries are left after a flush: idle logical clusters have none", got)
	}
}

func TestCounterIgnores(t *testing.T) {
	c := NewCounter("root", func(ctx context.Context) bool {
		cluster, _ := logicalcluster.From(ctx)
		return cluster == logicalcluster.Root
	})
	handler := c.WithCounting(http.HandlerFunc(echo), nothingSkipped)
	send(handler, logicalcluster.MustParseName("missing"), "get", "")
	send(handler, logicalcluster.Wildcard, "list", "")
	send(c.WithCounting(http.HandlerFunc(echo), func(*http.Request) bool { return true }), logicalcluster.Root, "get", "")
	if got := c.take(time.Now()); len(got) != 0 {
		t.Errorf("got %v, want nothing", got)
	}
}

// TestCounterAsksOnce: only a request without a place asks for a flush, not the flush itself.
func TestCounterAsksOnce(t *testing.T) {
	c := NewCounter("root", exists)
	c.startWatch(&exchange{cluster: logicalcluster.MustParseName("watched"), counted: time.Now()})
	for i := range maxClusters {
		c.clusters[logicalcluster.MustParseName(fmt.Sprintf("c%d", i))] = &Counts{}
	}
	taken := c.take(time.Now())
	for cluster, counts := range taken {
		c.putBack(cluster, counts)
	}
	c.putBack(logicalcluster.MustParseName("more"), &Counts{})
	if len(c.full) != 0 {
		t.Error("a flush asks for the next one")
	}
}

// failingKeys fails each count, and counts them.
type failingKeys struct{ counts int }

func (k *failingKeys) Count(context.Context, logicalcluster.Name) (int64, error) {
	k.counts++
	return 0, errors.New("etcd does not answer")
}

func (k *failingKeys) CountBytes(context.Context, logicalcluster.Name) (int64, error) {
	return 0, errors.New("not reached")
}

func TestFailedCountIsNotRepeatedAtOnce(t *testing.T) {
	keys := &failingKeys{}
	s := newSizes(keys)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		if got := s.of(t.Context(), logicalcluster.Root); got.known {
			t.Errorf("got %+v", got)
		}
		s.of(ended, logicalcluster.Root)
	}
	if keys.counts != 1 {
		t.Errorf("counted %d times, want 1", keys.counts)
	}
}

func TestTopIsBounded(t *testing.T) {
	r := NewRecorder(Config{Exists: exists})
	counts := map[logicalcluster.Name]*Counts{}
	for i := range 100 {
		counts[logicalcluster.MustParseName(fmt.Sprintf("c%d", i))] = &Counts{Gets: int64(i), SentBytes: int64(100 - i)}
	}
	r.setTop(counts)
	if got := r.top; len(got.byRequests) != topLength || got.byRequests[0].counts.Gets != 99 || len(got.byBytes) != topLength || got.byBytes[0].counts.SentBytes != 100 {
		t.Errorf("got %v", got)
	}
}
