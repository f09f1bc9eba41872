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
	tenant   = &user.DefaultInfo{Name: "ada", Groups: []string{user.AllAuthenticated}}
	stranger = &user.DefaultInfo{Name: "mallory", Groups: []string{user.AllAuthenticated}}
	masters  = &user.DefaultInfo{Name: "proxy", Groups: []string{user.SystemPrivilegedGroup}}
	own      = &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}}
)

func in(t *testing.T, cluster string) context.Context {
	t.Helper()
	if cluster == "" {
		return t.Context()
	}
	if cluster == "*" {
		return logicalcluster.With(t.Context(), logicalcluster.Wildcard)
	}
	return logicalcluster.With(t.Context(), logicalcluster.MustParseName(cluster))
}

// shard is a controller under test with the requests that hold its seats.
type shard struct {
	*Controller
	running sync.WaitGroup
}

// start sends a request that runs until release is closed, and returns when it is executed, waits, or was rejected. It
// returns whether it is executed, and the name of its level.
func (s *shard) start(ctx context.Context, u user.Info, path string, release <-chan struct{}) (served bool, level string) {
	began, waits, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
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
				close(began)
				<-release
			})
	})
	level = <-name
	select {
	case <-began:
		return true, level
	default:
	}
	select {
	case <-began:
		return true, level
	case <-waits:
		select { // a request that is executed at once passes through its queue
		case <-began:
			return true, level
		case <-time.After(50 * time.Millisecond):
			return false, level
		}
	case <-ended:
		return false, level
	}
}

func newShard(t *testing.T, limits Limits) *shard {
	t.Helper()
	c, err := New(limits, func(ctx context.Context, u user.Info) string {
		cluster, _ := logicalcluster.From(ctx)
		if u.GetName() == stranger.Name {
			return "user " + stranger.Name
		}
		return cluster.String()
	})
	if err != nil {
		t.Fatal(err)
	}
	return &shard{Controller: c}
}

func TestWhoWaitsForWhom(t *testing.T) {
	s := newShard(t, Limits{Allowance: 2, Calm: 10, Busy: 1, Wildcard: 1, SlowAfter: time.Hour, OfOne: 10})
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
		{"but who may not enter takes none of its places", "loud", stranger, "", true, "calm"},
		{"a quiet logical cluster waits for nobody", "quiet", tenant, "", true, "calm"},
		{"who asks for none is a flow", "", tenant, "/version", true, "calm"},
		{"the shard itself waits for nobody", "loud", own, "", true, "exempt"},
		{"nor do components of the installation", "loud", masters, "", true, "exempt"},
		{"nor does who asks whether it lives", "loud", tenant, "/livez/etcd", true, "exempt"},
		{"requests to all logical clusters have places of their own", "*", masters, "", true, "wildcard"},
		{"which are few", "*", masters, "", true, "wildcard"},
	} {
		if tc.sentence == "which are few" {
			tc.served = false
		}
		served, level := s.start(in(t, tc.cluster), tc.user, tc.path, release)
		if served != tc.served || level != tc.level {
			t.Errorf("%s: served %v at %s, want %v at %s", tc.sentence, served, level, tc.served, tc.level)
		}
	}
	close(release)
	s.running.Wait()
	if len(s.inFlight.of) != 0 || s.inFlight.all != 0 {
		t.Errorf("after all have ended %d flows are remembered", len(s.inFlight.of))
	}
}

func TestASlowRequestGivesItsPlaceUp(t *testing.T) {
	s := newShard(t, Limits{Allowance: 0, Calm: 1, Busy: 1, Wildcard: 1, Slow: 1, SlowAfter: time.Millisecond, OfOne: 10})
	release := make(chan struct{})
	if served, _ := s.start(in(t, "slow"), tenant, "", release); !served {
		t.Fatal("the first request waits")
	}
	s.eventually(t, "it counts as slow", func() bool { return s.slow.all == 1 })
	if served, _ := s.start(in(t, "slow"), tenant, "", release); !served {
		t.Fatal("the place was not given up")
	}
	// The limit of slow requests is reached by the first, so the second one keeps its seat.
	waiting := make(chan struct{})
	if served, _ := s.start(in(t, "other"), tenant, "", waiting); served {
		t.Error("the place was given up twice")
	}
	close(release)
	close(waiting)
	s.running.Wait()
	if len(s.slow.of) != 0 || s.slow.all != 0 {
		t.Errorf("after all have ended %d flows are remembered", len(s.slow.of))
	}
}

func TestOnesSlowRequestsHoldNobodyElseUp(t *testing.T) {
	s := newShard(t, Limits{Allowance: 0, Calm: 1, Busy: 1, Wildcard: 1, Slow: 100, SlowAfter: time.Millisecond, OfOne: 2})
	release := make(chan struct{})
	for n := 1; n <= 2; n++ {
		if served, _ := s.start(in(t, "slow"), tenant, "", release); !served {
			t.Fatal("a request waits")
		}
		s.eventually(t, "it counts as slow", func() bool { return s.slow.all == n })
	}
	served := make(chan struct{})
	s.running.Go(func() {
		digest := flowcontrol.RequestDigest{User: tenant, RequestInfo: &request.RequestInfo{IsResourceRequest: true, Verb: "get"}}
		s.Handle(in(t, "slow"), digest, func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string) {}, nil, func(bool) {}, func() { close(served) })
	})
	s.eventually(t, "a third one waits", func() bool {
		s.ofOne.mu.Lock()
		defer s.ofOne.mu.Unlock()
		return len(s.ofOne.of[flow{name: "slow", inside: true}].waiting) == 1
	})
	select {
	case <-served:
		t.Error("a third request was served beside two slow ones")
	default:
	}
	if served, _ := s.start(in(t, "other"), tenant, "", release); !served {
		t.Error("another logical cluster waits for slow requests that are not its own")
	}
	close(release)
	<-served
	s.running.Wait()
	if len(s.ofOne.of) != 0 {
		t.Errorf("after all have ended %d flows are remembered", len(s.ofOne.of))
	}
}

func TestTurns(t *testing.T) {
	one, other := flow{name: "one"}, flow{name: "other"}
	turns := turns{of: map[flow]*turn{}, limit: 1, waiting: 2}
	if !turns.enter(t.Context(), one) || !turns.enter(t.Context(), other) {
		t.Fatal("the first request of a flow waits")
	}
	first, _ := turns.join(one)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if turns.enter(ended, one) {
		t.Error("a request whose context has ended went on")
	}
	second, _ := turns.join(one)
	if turns.enter(t.Context(), one) {
		t.Error("more wait than may")
	}
	turns.leave(one)
	<-first
	select {
	case <-second:
		t.Error("two go on for one that left")
	default:
	}
	turns.leave(one)
	<-second
	turns.leave(one)
	turns.leave(other)
	if len(turns.of) != 0 {
		t.Errorf("%d flows are remembered", len(turns.of))
	}
}

func (s *shard) eventually(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		s.slow.mu.Lock()
		done := reached()
		s.slow.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(end) {
			t.Fatal(what)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestFullQueuesRefuse(t *testing.T) {
	s := newShard(t, Limits{Allowance: 0, Calm: 1, Busy: 1, Wildcard: 1, SlowAfter: time.Hour, OfOne: 1000})
	ctx, cancel := context.WithCancel(in(t, "loud"))
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
