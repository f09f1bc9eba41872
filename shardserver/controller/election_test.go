package controller

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/storage/storagetest"
)

// leaseServer serves one Lease over HTTP with the optimistic concurrency of an API server, which is sufficient for an
// election.
type leaseServer struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
	down    atomic.Bool
}

func (s *leaseServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	writeError := func(code int, reason metav1.StatusReason) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(code)})
	}
	if s.down.Load() {
		writeError(http.StatusInternalServerError, metav1.StatusReasonInternalError)
		return
	}
	if req.Method == http.MethodGet && s.lease == nil {
		writeError(http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	if req.Method != http.MethodGet {
		body, _ := io.ReadAll(req.Body)
		sent := &coordinationv1.Lease{}
		if err := json.Unmarshal(body, sent); err != nil {
			writeError(http.StatusBadRequest, metav1.StatusReasonBadRequest)
			return
		}
		if s.lease != nil && sent.ResourceVersion != s.lease.ResourceVersion {
			writeError(http.StatusConflict, metav1.StatusReasonConflict)
			return
		}
		s.version++
		sent.ResourceVersion = strconv.Itoa(s.version)
		s.lease = sent
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.lease)
}

func (s *leaseServer) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil || s.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *s.lease.Spec.HolderIdentity
}

func (s *leaseServer) election(t *testing.T, identity string) *Election {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if cluster, _ := logicalcluster.From(req.Context()); cluster != logicalcluster.Admin {
				t.Errorf("%s of the lease went to cluster %q", req.Method, cluster)
			}
			return next.RoundTrip(req)
		})
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &Election{
		Client: client.CoordinationV1(), Identity: identity,
		leaseDuration: 500 * time.Millisecond, renewDeadline: 300 * time.Millisecond, retryPeriod: 50 * time.Millisecond,
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// runElection runs an election that counts its terms.
func runElection(t *testing.T, election *Election) (leading *atomic.Bool, terms *atomic.Int64, stop func()) {
	t.Helper()
	leading, terms = &atomic.Bool{}, &atomic.Int64{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- election.run(ctx, func(ctx context.Context) {
			terms.Add(1)
			leading.Store(true)
			<-ctx.Done()
			leading.Store(false)
		})
	}()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return leading, terms, stop
}

func TestLeaderElectionHandover(t *testing.T) {
	server := &leaseServer{}
	first, _, stopFirst := runElection(t, server.election(t, "first"))
	storagetest.Eventually(t, "the first to lead", first.Load)
	second, _, _ := runElection(t, server.election(t, "second"))
	if second.Load() || server.holder() != "first" {
		t.Fatalf("second leads: %v, holder %q", second.Load(), server.holder())
	}
	stopFirst()
	if first.Load() {
		t.Error("controllers still run after the stop")
	}
	storagetest.Eventually(t, "the second to lead", second.Load)
}

func TestLostLeaseStopsControllers(t *testing.T) {
	server := &leaseServer{}
	leading, terms, _ := runElection(t, server.election(t, "only"))
	storagetest.Eventually(t, "the first term", leading.Load)
	server.down.Store(true)
	storagetest.Eventually(t, "the end of the term", func() bool { return !leading.Load() })
	server.down.Store(false)
	storagetest.Eventually(t, "the second term", func() bool { return leading.Load() && terms.Load() == 2 })
}

func TestElectionRequiresClient(t *testing.T) {
	if _, err := NewManager(Config{Registry: storage.NewRegistry(storage.Locality{}), Election: &Election{}}); err == nil {
		t.Error("want an error")
	}
}
