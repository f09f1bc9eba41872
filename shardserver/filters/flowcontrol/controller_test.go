package flowcontrol

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	tenant           = &user.DefaultInfo{Name: "ada", Groups: []string{user.AllAuthenticated}}
	otherTenant      = &user.DefaultInfo{Name: "eve", Groups: []string{user.AllAuthenticated}}
	unauthorizedUser = &user.DefaultInfo{Name: "mallory", Groups: []string{user.AllAuthenticated}}
	anonymous        = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
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

// testController is a controller under test, with the requests that hold its seats until release is called.
type testController struct {
	*controller
	release func()
	end     <-chan struct{}
	// running are the requests of start.
	running sync.WaitGroup
}

// newTestController runs a controller and waits until it uses the fixed objects.
func newTestController(t *testing.T, seats, seatsPerFlow int) *testController {
	t.Helper()
	c := New(Config{
		Seats: seats, SeatsPerFlow: seatsPerFlow,
		FlowOwner: func(ctx context.Context, u user.Info) string {
			cluster, _ := logicalcluster.From(ctx)
			if u.GetName() == unauthorizedUser.Name {
				return "user " + u.GetName()
			}
			return cluster.String()
		},
		MayWaitForTenant: func(_ context.Context, info *request.RequestInfo) bool { return info.Resource == hooked },
		Origin:           func(_ context.Context, u user.Info) string { return "user " + u.GetName() },
	}).(*controller)
	end := make(chan struct{})
	s := &testController{controller: c, end: end, release: sync.OnceFunc(func() { close(end) })}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		if err := c.Run(stop); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		s.release()
		s.running.Wait()
		close(stop)
		<-stopped
		if len(c.users.holders)+len(c.flows.holders) != 0 {
			t.Errorf("after all have ended %d users and %d flows are remembered", len(c.users.holders), len(c.flows.holders))
		}
	})
	eventually(t, "the fixed levels are used", func() bool {
		return c.GetMaxSeats(inCluster.level.Name) > 0 && c.GetMaxSeats(wildcard.level.Name) > 0
	})
	return s
}

func eventually(t *testing.T, description string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(description)
		}
	}
}

// outcome is what becomes of a request: it is served, waits in a queue of its level, waits for other requests of its user
// or flow, or is refused.
type outcome string

const (
	served  outcome = "served"
	queued  outcome = "queued"
	behind  outcome = "behind requests of the user or flow"
	refused outcome = "refused"
)

// start sends a request that runs until release is called. It returns its outcome and the name of its schema.
func (t *testController) start(ctx context.Context, u user.Info, info request.RequestInfo,
	seats uint64) (got outcome, schema string) {
	executing, waits, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	noted := make(chan string, 1)
	t.running.Go(func() {
		defer close(ended)
		t.Handle(ctx, flowcontrol.RequestDigest{User: u, RequestInfo: &info},
			func(schema *flowcontrolv1.FlowSchema, _ *flowcontrolv1.PriorityLevelConfiguration, _ string) {
				noted <- schema.Name
			},
			func() fcrequest.WorkEstimate { return fcrequest.WorkEstimate{InitialSeats: seats} },
			func(inQueue bool) {
				if inQueue {
					close(waits)
				}
			},
			func() {
				close(executing)
				<-t.end
			})
	})
	schema = <-noted
	wait := time.After(time.Second)
	select {
	case <-executing:
		return served, schema
	case <-ended:
		return refused, schema
	case <-wait:
		return behind, schema
	case <-waits:
		select { // a request that is executed at once passes through its queue
		case <-executing:
			return served, schema
		case <-time.After(200 * time.Millisecond):
			return queued, schema
		}
	}
}

func resource() request.RequestInfo {
	return request.RequestInfo{IsResourceRequest: true, Verb: "get", Resource: "configmaps", Namespace: "default"}
}

// hooked is a resource with webhooks.
const hooked = "hooks"

func hookedResource() request.RequestInfo {
	info := resource()
	info.Resource = hooked
	return info
}

func nonResource(path string) request.RequestInfo {
	return request.RequestInfo{Verb: "get", Path: path}
}

func TestSchemas(t *testing.T) {
	s := newTestController(t, 100, 25)
	for _, tc := range []struct {
		sentence string
		cluster  string
		user     user.Info
		info     request.RequestInfo
		schema   string
	}{
		{"a request to a logical cluster", "one", tenant, resource(), "logical-clusters"},
		{"one for discovery", "one", tenant, nonResource("/apis"), "logical-clusters"},
		{"one of an anonymous user", "one", anonymous, resource(), "logical-clusters"},
		{"one to no logical cluster", "", tenant, nonResource("/version"), "logical-clusters"},
		{"one to all logical clusters", "*", tenant, resource(), "wildcard"},
		{"one for discovery in all of them", "*", tenant, nonResource("/apis"), "logical-clusters"},
		{"one that may call a webhook", "one", tenant, hookedResource(), "tenant-servers"},
		{"one of the shard itself that may call a webhook", "one", loopbackUser, hookedResource(), "exempt"},
		{"one of the shard itself", "one", loopbackUser, resource(), "exempt"},
		{"one of a component of the installation", "*", masters, resource(), "exempt"},
		{"a probe", "", anonymous, nonResource("/livez/etcd"), "probes"},
		{"a probe in a logical cluster", "one", tenant, nonResource("/readyz"), "probes"},
		{"metrics", "", tenant, nonResource("/metrics"), "probes"},
		{"the usage of a logical cluster", "one", tenant, nonResource("/metrics"), "logical-clusters"},
		{"what looks like a probe", "one", tenant, nonResource("/livezz"), "logical-clusters"},
	} {
		if got, schema := s.start(clusterContext(t, tc.cluster), tc.user, tc.info, 1); got != served || schema != tc.schema {
			t.Errorf("%s: %s by %s, want %s", tc.sentence, got, schema, tc.schema)
		}
	}
}

func TestFlows(t *testing.T) {
	s := newTestController(t, 100, 25)
	for _, tc := range []struct {
		sentence string
		cluster  string
		user     user.Info
		info     request.RequestInfo
		want     string
	}{
		{"a flow is a logical cluster", "one", tenant, resource(), "one"},
		{"any user", "one", otherTenant, resource(), "one"},
		{"but users who may not access it are flows themselves", "one", unauthorizedUser, resource(), "user mallory"},
		{"so are users in no logical cluster", "", tenant, nonResource("/version"), "user ada"},
		{"and those that read documents of all", "*", tenant, nonResource("/apis"), "user ada"},
		{"requests to all have no namespace", "*", tenant, resource(), ""},
	} {
		origin := "user " + tc.user.GetName()
		digest := flowcontrol.RequestDigest{User: tc.user, RequestInfo: &tc.info}
		got := s.withFlow(clusterContext(t, tc.cluster), digest, origin)
		if got.RequestInfo.Namespace != tc.want || got.User.GetName() != origin {
			t.Errorf("%s: got %q of %q, want %q", tc.sentence, got.RequestInfo.Namespace, got.User.GetName(), tc.want)
		}
	}
}

// TestUserShare exhausts the seats of a user in several logical clusters.
func TestUserShare(t *testing.T) {
	s := newTestController(t, 40, 10)
	for i := range 5 {
		if got, _ := s.start(clusterContext(t, fmt.Sprintf("cluster-%d", i)), tenant, resource(), 2); got != served {
			t.Fatalf("request %d: %s", i, got)
		}
	}
	if got, _ := s.start(clusterContext(t, "further"), tenant, resource(), 1); got != behind {
		t.Errorf("a request beyond the user's share: %s", got)
	}
	if got, _ := s.start(clusterContext(t, "cluster-0"), otherTenant, resource(), 1); got != served {
		t.Errorf("a request of another user to the same logical cluster: %s", got)
	}
	if got, _ := s.start(clusterContext(t, "cluster-0"), masters, resource(), 1); got != served {
		t.Errorf("a request of a component of the installation: %s", got)
	}
	if got, _ := s.start(clusterContext(t, ""), tenant, nonResource("/livez"), 1); got != served {
		t.Errorf("a probe: %s", got)
	}
}

// TestFlowShare exhausts the seats of a logical cluster by many users.
func TestFlowShare(t *testing.T) {
	s := newTestController(t, 40, 10)
	newUser := func(i int) user.Info {
		return &user.DefaultInfo{Name: fmt.Sprintf("user-%d", i), Groups: []string{user.AllAuthenticated}}
	}
	for i := range 5 {
		if got, _ := s.start(clusterContext(t, "one"), newUser(i), resource(), 2); got != served {
			t.Fatalf("request %d: %s", i, got)
		}
	}
	if got, _ := s.start(clusterContext(t, "one"), newUser(5), resource(), 1); got != behind {
		t.Errorf("a request beyond the share of the logical cluster: %s", got)
	}
	if got, _ := s.start(clusterContext(t, "other"), newUser(0), resource(), 1); got != served {
		t.Errorf("a request of one of the users to another logical cluster: %s", got)
	}
	if got, _ := s.start(clusterContext(t, "one"), masters, resource(), 1); got != served {
		t.Errorf("a request of a component of the installation: %s", got)
	}
}

// TestTenantServers occupies all seats of requests that may wait for tenants, from many logical clusters.
func TestTenantServers(t *testing.T) {
	s := newTestController(t, 20, 100)
	occupied := 0
	for got := served; got == served; occupied++ {
		u := &user.DefaultInfo{Name: fmt.Sprintf("user-%d", occupied), Groups: []string{user.AllAuthenticated}}
		got, _ = s.start(clusterContext(t, fmt.Sprintf("cluster-%d", occupied)), u, hookedResource(), 1)
	}
	if occupied < 2 || occupied > 5 {
		t.Fatalf("request %d waits, want one after a fifth of the seats", occupied)
	}
	for range 10 {
		if got, schema := s.start(clusterContext(t, "cluster-0"), tenant, resource(), 1); got != served || schema != inCluster.schema.Name {
			t.Errorf("a request that calls no webhook: %s by %s", got, schema)
		}
	}
	s.release()
	s.running.Wait()
}

// TestFullLevel occupies all seats of a level by many users.
func TestFullLevel(t *testing.T) {
	s := newTestController(t, 20, 100)
	occupied := 0
	for ; occupied < 20; occupied++ {
		u := &user.DefaultInfo{Name: fmt.Sprintf("user-%d", occupied), Groups: []string{user.AllAuthenticated}}
		if got, _ := s.start(clusterContext(t, "loud"), u, resource(), 1); got == queued {
			break
		}
	}
	if occupied == 0 || occupied == 20 {
		t.Fatalf("%d requests were served at once", occupied)
	}
	if got, _ := s.start(clusterContext(t, "*"), tenant, resource(), 1); got != served {
		t.Errorf("a request of another level: %s", got)
	}
	if got, _ := s.start(clusterContext(t, "loud"), masters, resource(), 1); got != served {
		t.Errorf("a request of a component of the installation: %s", got)
	}
	s.release()
	s.running.Wait()
}

// TestFairness dispatches the requests of two logical clusters in turn, however many of one wait.
func TestFairness(t *testing.T) {
	s := newTestController(t, 50, 50)
	turn := make(chan string, 100)
	var all sync.WaitGroup
	seats := int(s.GetMaxSeats(inCluster.level.Name))
	send := func(cluster string, i int, execute func()) {
		u := &user.DefaultInfo{Name: fmt.Sprintf("user-%s-%d", cluster, i), Groups: []string{user.AllAuthenticated}}
		waits := make(chan struct{})
		once := sync.OnceFunc(func() { close(waits) })
		info := resource()
		all.Go(func() {
			s.Handle(clusterContext(t, cluster), flowcontrol.RequestDigest{User: u, RequestInfo: &info},
				func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string) {},
				func() fcrequest.WorkEstimate { return fcrequest.WorkEstimate{InitialSeats: 1} },
				func(bool) { once() },
				func() {
					once()
					execute()
				})
		})
		<-waits
	}
	for i := range 50 { // occupies all seats
		send("first", i, func() { <-s.end })
	}
	for i := range 40 {
		send("loud", i, func() {
			time.Sleep(5 * time.Millisecond)
			turn <- "loud"
		})
	}
	send("quiet", 0, func() { turn <- "quiet" })
	s.release()
	all.Wait()
	close(turn)
	before := 0
	for cluster := range turn {
		if cluster == "quiet" {
			break
		}
		before++
	}
	if before > 20 {
		t.Errorf("the request of a quiet logical cluster was served after %d of a loud one, with %d seats at most", before, seats)
	}
}

// TestRefusal sends more requests of one user than may wait, through the stock filter.
func TestRefusal(t *testing.T) {
	s := newTestController(t, 8, 2)
	executing := make(chan struct{}, 100)
	handler := genericfilters.WithPriorityAndFairness(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		executing <- struct{}{}
		<-s.end
	}), genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString()), s,
		func(*http.Request, string, string) fcrequest.WorkEstimate {
			return fcrequest.WorkEstimate{InitialSeats: 1}
		}, 10*time.Second)
	send := func() *http.Response {
		info := resource()
		ctx := request.WithUser(request.WithRequestInfo(clusterContext(t, "one"), &info), tenant)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		return w.Result()
	}
	for range 8 {
		s.running.Go(func() {
			if res := send(); res.StatusCode != http.StatusOK {
				t.Errorf("a request that may wait: %s", res.Status)
			}
		})
	}
	<-executing
	<-executing
	eventually(t, "the others wait", func() bool {
		s.users.mu.Lock()
		defer s.users.mu.Unlock()
		return s.users.holders["user ada"].requests == 8
	})
	res := send()
	if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") == "" ||
		res.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID) != "logical-clusters" {
		t.Errorf("a request too many: %s %v", res.Status, res.Header)
	}
	if len(executing) != 0 {
		t.Error("more requests of one user are executed than its share")
	}
	s.release()
	s.running.Wait()
}

// TestWatchReleasesSeats opens more watches than the user has seats.
func TestWatchReleasesSeats(t *testing.T) {
	s := newTestController(t, 8, 2)
	open := make(chan struct{}, 100)
	handler := genericfilters.WithPriorityAndFairness(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		flowcontrol.WatchInitialized(req.Context())
		open <- struct{}{}
		<-s.end
	}), genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString()), s,
		func(*http.Request, string, string) fcrequest.WorkEstimate {
			return fcrequest.WorkEstimate{InitialSeats: 1}
		}, 10*time.Second)
	for range 20 {
		s.running.Go(func() {
			info := resource()
			info.Verb = "watch"
			ctx := request.WithUser(request.WithRequestInfo(clusterContext(t, "one"), &info), tenant)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/?watch=true", strings.NewReader("")))
		})
		<-open
	}
	s.release()
	s.running.Wait()
}

func TestLimiter(t *testing.T) {
	l := newLimiter(2, 3)
	releaseOne, ok := l.acquire(t.Context(), "one", 1)
	if !ok {
		t.Fatal("the first request of a user waits")
	}
	releaseWide, ok := l.acquire(t.Context(), "other", 5)
	if !ok {
		t.Fatal("a request that needs more than all seats is not served with all")
	}
	ended, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if _, ok := l.acquire(ended, "one", 2); ok {
			t.Error("a request went on without seats")
		}
	})
	count := func(user string) int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.holders[user].requests
	}
	eventually(t, "a request waits", func() bool { return count("one") == 2 })
	cancel()
	waiting.Wait()
	if got := count("one"); got != 1 {
		t.Errorf("%d requests are counted", got)
	}
	releaseOne()
	releaseWide()
	if len(l.holders) != 0 {
		t.Errorf("%d users are remembered", len(l.holders))
	}
}
