package flowcontrol

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	tenant           = &user.DefaultInfo{Name: "ada", Groups: []string{user.AllAuthenticated}}
	unauthorizedUser = &user.DefaultInfo{Name: "mallory", Groups: []string{user.AllAuthenticated}}
	masters          = &user.DefaultInfo{Name: "proxy", Groups: []string{user.SystemPrivilegedGroup}}
	loopbackUser     = &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}}
)

func clusterContext(t *testing.T, cluster string) context.Context {
	t.Helper()
	if cluster == "" {
		return t.Context()
	}
	if cluster == "*" {
		return logicalcluster.With(t.Context(), logicalcluster.Wildcard)
	}
	return logicalcluster.With(t.Context(), logicalcluster.MustParseName(cluster))
}

// testController is a controller under test with the requests that hold its seats.
type testController struct {
	*Controller
	running sync.WaitGroup
}

// start sends a request that runs until release is closed, and returns when it is executed, waits, or was rejected. It
// returns whether it is executed, and the name of its level.
func (s *testController) start(ctx context.Context, u user.Info, path string, release <-chan struct{}) (served bool, level string) {
	executing, waits, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	name := make(chan string, 1)
	s.running.Go(func() {
		defer close(ended)
		digest := flowcontrol.RequestDigest{User: u, RequestInfo: &request.RequestInfo{IsResourceRequest: path == "", Path: path, Verb: "get"}}
		s.Handle(ctx, digest, func(_ *flowcontrolv1.FlowSchema, level *flowcontrolv1.PriorityLevelConfiguration, _ string) {
			name <- level.Name
		}, nil,
			func(queued bool) {
				if queued {
					close(waits)
				}
			},
			func() {
				close(executing)
				<-release
			})
	})
	level = <-name
	select {
	case <-executing:
		return true, level
	default:
	}
	select {
	case <-executing:
		return true, level
	case <-waits:
		select { // a request that is executed at once passes through its queue
		case <-executing:
			return true, level
		case <-time.After(50 * time.Millisecond):
			return false, level
		}
	case <-ended:
		return false, level
	}
}

func newTestController(t *testing.T, limits Limits) *testController {
	t.Helper()
	c, err := New(limits, func(ctx context.Context, u user.Info) string {
		cluster, _ := logicalcluster.From(ctx)
		if u.GetName() == unauthorizedUser.Name {
			return "user " + unauthorizedUser.Name
		}
		return cluster.String()
	})
	if err != nil {
		t.Fatal(err)
	}
	return &testController{Controller: c}
}

func TestPriorityLevels(t *testing.T) {
	s := newTestController(t, Limits{GuaranteedPerFlow: 2, GuaranteedSeats: 10, SharedSeats: 1, WildcardSeats: 1, SlowAfter: time.Hour, MaxPerFlow: 10})
	release := make(chan struct{})
	for _, tc := range []struct {
		sentence string
		cluster  string
		user     user.Info
		path     string
		served   bool
		level    string
	}{
		{"a first request is served", "loud", tenant, "", true, "calm"},
		{"a second one too", "loud", tenant, "", true, "calm"},
		{"further ones have one place between them", "loud", tenant, "", true, "busy"},
		{"and wait for it", "loud", tenant, "", false, "busy"},
		{"even if somebody else sends them", "loud", &user.DefaultInfo{Name: "eve"}, "", false, "busy"},
		{"but who may not enter takes none of its places", "loud", unauthorizedUser, "", true, "calm"},
		{"a quiet logical cluster waits for nobody", "quiet", tenant, "", true, "calm"},
		{"who asks for none is a flow", "", tenant, "/version", true, "calm"},
		{"the shard itself waits for nobody", "loud", loopbackUser, "", true, "exempt"},
		{"nor do components of the installation", "loud", masters, "", true, "exempt"},
		{"nor does who asks whether it lives", "loud", tenant, "/livez/etcd", true, "exempt"},
		{"requests to all logical clusters have places of their own", "*", masters, "", true, "wildcard"},
		{"which are few", "*", masters, "", true, "wildcard"},
	} {
		if tc.sentence == "which are few" {
			tc.served = false
		}
		served, level := s.start(clusterContext(t, tc.cluster), tc.user, tc.path, release)
		if served != tc.served || level != tc.level {
			t.Errorf("%s: served %v at %s, want %v at %s", tc.sentence, served, level, tc.served, tc.level)
		}
	}
	close(release)
	s.running.Wait()
	if len(s.inFlight.counts) != 0 || s.inFlight.total != 0 {
		t.Errorf("after all have ended %d flows are remembered", len(s.inFlight.counts))
	}
}

func TestSlowRequestReleasesSeat(t *testing.T) {
	s := newTestController(t, Limits{GuaranteedPerFlow: 0, GuaranteedSeats: 1, SharedSeats: 1, WildcardSeats: 1, MaxSlow: 1, SlowAfter: time.Millisecond, MaxPerFlow: 10})
	release := make(chan struct{})
	if served, _ := s.start(clusterContext(t, "slow"), tenant, "", release); !served {
		t.Fatal("the first request waits")
	}
	s.eventually(t, "it counts as slow", func() bool { return s.slow.total == 1 })
	if served, _ := s.start(clusterContext(t, "slow"), tenant, "", release); !served {
		t.Fatal("the place was not given up")
	}
	// The limit of slow requests is reached by the first, so the second one keeps its seat.
	waiting := make(chan struct{})
	if served, _ := s.start(clusterContext(t, "other"), tenant, "", waiting); served {
		t.Error("the place was given up twice")
	}
	close(release)
	close(waiting)
	s.running.Wait()
	if len(s.slow.counts) != 0 || s.slow.total != 0 {
		t.Errorf("after all have ended %d flows are remembered", len(s.slow.counts))
	}
}

func TestSlowRequestsDelayOnlyTheirFlow(t *testing.T) {
	s := newTestController(t, Limits{GuaranteedPerFlow: 0, GuaranteedSeats: 1, SharedSeats: 1, WildcardSeats: 1, MaxSlow: 100, SlowAfter: time.Millisecond, MaxPerFlow: 2})
	release := make(chan struct{})
	for n := 1; n <= 2; n++ {
		if served, _ := s.start(clusterContext(t, "slow"), tenant, "", release); !served {
			t.Fatal("a request waits")
		}
		s.eventually(t, "it counts as slow", func() bool { return s.slow.total == n })
	}
	served := make(chan struct{})
	s.running.Go(func() {
		digest := flowcontrol.RequestDigest{User: tenant, RequestInfo: &request.RequestInfo{IsResourceRequest: true, Verb: "get"}}
		s.Handle(clusterContext(t, "slow"), digest, func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string) {}, nil, func(bool) {}, func() { close(served) })
	})
	s.eventually(t, "a third one waits", func() bool {
		s.perFlow.mu.Lock()
		defer s.perFlow.mu.Unlock()
		return len(s.perFlow.flows[flow{name: "slow", inCluster: true}].waiting) == 1
	})
	select {
	case <-served:
		t.Error("a third request was served beside two slow ones")
	default:
	}
	if served, _ := s.start(clusterContext(t, "other"), tenant, "", release); !served {
		t.Error("another logical cluster waits for slow requests that are not its own")
	}
	close(release)
	<-served
	s.running.Wait()
	if len(s.perFlow.flows) != 0 {
		t.Errorf("after all have ended %d flows are remembered", len(s.perFlow.flows))
	}
}

func TestLimiter(t *testing.T) {
	one, other := flow{name: "one"}, flow{name: "other"}
	limiter := limiter{flows: map[flow]*flowState{}, limit: 1, maxWaiting: 2}
	if !limiter.acquire(t.Context(), one) || !limiter.acquire(t.Context(), other) {
		t.Fatal("the first request of a flow waits")
	}
	first, _ := limiter.tryAcquire(one)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if limiter.acquire(ended, one) {
		t.Error("a request whose context has ended went on")
	}
	second, _ := limiter.tryAcquire(one)
	if limiter.acquire(t.Context(), one) {
		t.Error("more wait than may")
	}
	limiter.release(one)
	<-first
	select {
	case <-second:
		t.Error("two go on for one that left")
	default:
	}
	limiter.release(one)
	<-second
	limiter.release(one)
	limiter.release(other)
	if len(limiter.flows) != 0 {
		t.Errorf("%d flows are remembered", len(limiter.flows))
	}
}

func (s *testController) eventually(t *testing.T, description string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		s.slow.mu.Lock()
		done := condition()
		s.slow.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(end) {
			t.Fatal(description)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestFullQueuesReject(t *testing.T) {
	s := newTestController(t, Limits{GuaranteedPerFlow: 0, GuaranteedSeats: 1, SharedSeats: 1, WildcardSeats: 1, SlowAfter: time.Hour, MaxPerFlow: 1000})
	ctx, cancel := context.WithCancel(clusterContext(t, "loud"))
	release := make(chan struct{})
	if served, _ := s.start(ctx, tenant, "", release); !served {
		t.Fatal("the first request waits")
	}
	const sent = handSize*queueLength + 20
	var mu sync.Mutex
	outcomes := map[string]int{}
	all := sync.WaitGroup{}
	arrived := make(chan string, 2*sent)
	for range sent {
		all.Go(func() {
			outcome := "refused"
			digest := flowcontrol.RequestDigest{User: tenant, RequestInfo: &request.RequestInfo{IsResourceRequest: true, Verb: "get"}}
			s.Handle(ctx, digest, func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string) {}, nil,
				func(queued bool) {
					if queued {
						outcome = "gave up"
						arrived <- outcome
					}
				}, func() { outcome = "served" })
			if outcome == "refused" {
				arrived <- outcome
			}
			mu.Lock()
			defer mu.Unlock()
			outcomes[outcome]++
		})
	}
	for range sent {
		<-arrived
	}
	cancel() // as the request's own timeout does
	close(release)
	all.Wait()
	s.running.Wait()
	if outcomes["refused"] != 20 {
		t.Errorf("got %v, want 20 refused at once", outcomes)
	}
}
