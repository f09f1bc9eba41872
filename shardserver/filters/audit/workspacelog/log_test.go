package workspacelog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	stockaudit "k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/filters/audit"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// newEvent returns the event of a successful change in the logical cluster "own", with marks in all that may tell of others.
func newEvent(t *testing.T, source audit.Source, change func(*auditinternal.Event)) *auditinternal.Event {
	t.Helper()
	event := &auditinternal.Event{
		Level: auditinternal.LevelRequestResponse, AuditID: "id", Stage: auditinternal.StageResponseComplete,
		RequestURI: "/api/v1/namespaces/n/configmaps/c", Verb: "update",
		User: authenticationv1.UserInfo{
			Username: "alice", UID: "foreign-uid", Groups: []string{"foreign-group", "system:cluster:foreign"},
			Extra: map[string]authenticationv1.ExtraValue{"a": {"foreign-extra"}},
		},
		SourceIPs: []string{"10.0.0.99", "192.0.2.1"}, UserAgent: "kubectl",
		ObjectRef:      &auditinternal.ObjectReference{Resource: "configmaps", APIVersion: "v1", Namespace: "n", Name: "c"},
		ResponseStatus: &metav1.Status{Code: http.StatusOK, Message: "foreign-message"},
		StageTimestamp: metav1.NewMicroTime(time.UnixMicro(1000)),
		Annotations:    map[string]string{"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "foreign-reason", audit.ViewAnnotation: "apiexport/provider/widgets"},
	}
	// The annotations of the logical cluster and the source come from the filters.
	filter := audit.WithCluster(audit.WithSource(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		for key, value := range stockaudit.AuditContextFrom(req.Context()).GetEventAnnotations() {
			event.Annotations[key] = value
		}
	}), func(*http.Request) audit.Source { return source }))
	ctx := logicalcluster.With(t.Context(), logicalcluster.MustParseName("own"))
	filter.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
	if change != nil {
		change(event)
	}
	return event
}

func newLog(stored *state) *Log {
	return New(Config{Bytes: 1 << 20, Find: func(context.Context) error { return stored.err }, IsGone: func(context.Context, logicalcluster.Name) (bool, error) {
		if apierrors.IsNotFound(stored.err) {
			return true, nil
		}
		return false, stored.err
	}})
}

// state is what storage answers about a logical cluster.
type state struct{ err error }

func foreignServiceAccount(e *auditinternal.Event) {
	e.User.Username = "system:serviceaccount:ns:robot"
	e.User.Extra["authentication.kcp.io/cluster-name"] = authenticationv1.ExtraValue{"elsewhere"}
}

func foreignUserOfIssuer(e *auditinternal.Event) {
	e.User.Username = "alice"
	e.User.Extra["authentication.kcp.io/cluster-name"] = authenticationv1.ExtraValue{"elsewhere"}
}

func refuse(e *auditinternal.Event) {
	e.ResponseStatus.Code = http.StatusForbidden
	e.Annotations["authorization.k8s.io/decision"] = "forbid"
}

func unauthenticated(e *auditinternal.Event) {
	e.User.Username, e.ResponseStatus.Code, e.Stage = "", http.StatusUnauthorized, auditinternal.StageResponseStarted
	delete(e.Annotations, "authorization.k8s.io/decision")
}

func watchSecrets(e *auditinternal.Event) {
	e.Verb, e.ObjectRef.Resource, e.Stage = "watch", "secrets", auditinternal.StageResponseStarted
}

func TestEvents(t *testing.T) {
	const ignoredUser = "ignored"
	long := strings.Repeat("ä", 3000)
	for name, test := range map[string]struct {
		source   audit.Source
		change   func(*auditinternal.Event)
		wantUser string
		wantIP   bool
		ring     string // "changes" if empty
	}{
		"a change":                       {source: audit.SourceWorkspace, wantUser: "alice", wantIP: true},
		"a refused change":               {source: audit.SourceWorkspace, change: refuse, wantUser: "alice", ring: "refused"},
		"a change that failed":           {source: audit.SourceWorkspace, change: func(e *auditinternal.Event) { e.ResponseStatus.Code = http.StatusConflict }, wantUser: "alice", wantIP: true, ring: "others"},
		"a refused read":                 {source: audit.SourceWorkspace, change: func(e *auditinternal.Event) { e.Verb = "list"; refuse(e) }, wantUser: "alice", ring: "refused"},
		"a read":                         {source: audit.SourceWorkspace, change: func(e *auditinternal.Event) { e.Verb = "list" }, wantUser: ignoredUser},
		"a read of secrets":              {source: audit.SourceWorkspace, change: func(e *auditinternal.Event) { e.Verb, e.ObjectRef.Resource = "list", "secrets" }, wantUser: "alice", wantIP: true, ring: "others"},
		"no resource":                    {source: audit.SourceWorkspace, change: func(e *auditinternal.Event) { e.ObjectRef = nil }, wantUser: ignoredUser},
		"without valid credentials":      {source: audit.SourceWorkspace, change: unauthenticated, ring: "refused"},
		"without valid ones, for a view": {source: audit.SourceView, change: unauthenticated, wantUser: ignoredUser},
		"a watch of secrets that begins": {source: audit.SourceWorkspace, change: watchSecrets, wantUser: "alice", wantIP: true, ring: "others"},
		"one that is refused":            {source: audit.SourceWorkspace, change: func(e *auditinternal.Event) { watchSecrets(e); refuse(e) }, wantUser: "alice", ring: "refused"},
		"one that ends":                  {source: audit.SourceWorkspace, change: func(e *auditinternal.Event) { watchSecrets(e); e.Stage = auditinternal.StageResponseComplete }, wantUser: ignoredUser},
		"another watch":                  {source: audit.SourceWorkspace, change: func(e *auditinternal.Event) { watchSecrets(e); e.ObjectRef.Resource = "configmaps" }, wantUser: ignoredUser},
		"too many requests": {source: audit.SourceWorkspace, change: func(e *auditinternal.Event) {
			refuse(e)
			e.ResponseStatus.Code = http.StatusTooManyRequests
			delete(e.Annotations, "authorization.k8s.io/decision")
		}, wantUser: "alice", ring: "refused"},
		"a change that admission refuses": {source: audit.SourceWorkspace, change: func(e *auditinternal.Event) { e.ResponseStatus.Code = http.StatusForbidden }, wantUser: "alice", ring: "others"},
		"a name by a foreign issuer":      {source: audit.SourceWorkspace, change: foreignUserOfIssuer, wantUser: "system:cluster:elsewhere"},
		"a refused one":                   {source: audit.SourceWorkspace, change: func(e *auditinternal.Event) { foreignUserOfIssuer(e); refuse(e) }, wantUser: foreignUser, ring: "refused"},
		"an account of two origins": {source: audit.SourceWorkspace, change: func(e *auditinternal.Event) {
			foreignServiceAccount(e)
			e.User.Extra["authentication.kcp.io/cluster-name"] = []string{"own", "elsewhere"}
		}, wantUser: foreignUser},
		"another stage":                   {source: audit.SourceWorkspace, change: func(e *auditinternal.Event) { e.Stage = auditinternal.StageResponseStarted }, wantUser: ignoredUser},
		"the shard's controllers":         {source: audit.SourceWorkspace, change: func(e *auditinternal.Event) { e.User.Username = "system:apiserver" }, wantUser: ignoredUser},
		"another shard":                   {source: audit.SourceWorkspace, change: func(e *auditinternal.Event) { e.User.Groups = []string{"system:kcp:shard"} }, wantUser: ignoredUser},
		"an administrator of all":         {source: audit.SourceWorkspace, change: func(e *auditinternal.Event) { e.User.Groups = []string{"system:kcp:admin"} }, wantUser: "alice"},
		"a foreign service account":       {source: audit.SourceWorkspace, change: foreignServiceAccount, wantUser: "system:kcp:serviceaccount:elsewhere:ns:robot"},
		"a refused foreign account":       {source: audit.SourceWorkspace, change: func(e *auditinternal.Event) { foreignServiceAccount(e); refuse(e) }, wantUser: foreignUser, ring: "refused"},
		"a provider":                      {source: audit.SourceView, wantUser: "system:kcp:view:apiexport/provider/widgets"},
		"a foreign account of a provider": {source: audit.SourceView, change: foreignServiceAccount, wantUser: "system:kcp:view:apiexport/provider/widgets"},
		"a view that is refused":          {source: audit.SourceView, change: refuse, wantUser: ignoredUser},
		"a mounted workspace":             {source: audit.SourceMount, wantUser: ignoredUser},
		"all logical clusters":            {source: audit.SourceWorkspace, change: func(e *auditinternal.Event) { e.Annotations["kcp.io/cluster"] = "*" }, wantUser: ignoredUser},
		"strings of a length of one's own": {source: audit.SourceWorkspace, change: func(e *auditinternal.Event) {
			e.User.Username, e.RequestURI, e.UserAgent, e.ObjectRef.Name, e.Verb = long, long, long, long, "update"
		}, wantUser: long[:maxText], wantIP: true},
	} {
		t.Run(name, func(t *testing.T) {
			log := newLog(&state{})
			log.ProcessEvents(newEvent(t, test.source, test.change))
			records := log.read(logicalcluster.MustParseName("own"), 0, 10)
			if test.wantUser == ignoredUser {
				if len(records) > 0 {
					t.Fatalf("got %s", records[0].event)
				}
				return
			}
			if len(records) != 1 {
				t.Fatalf("got %d events, want 1", len(records))
			}
			text := string(records[0].event)
			var got auditv1.Event
			if err := json.Unmarshal(records[0].event, &got); err != nil {
				t.Fatal(err)
			}
			if got.User.Username != test.wantUser || (len(got.SourceIPs) == 1 && got.UserAgent != "") != test.wantIP || got.Level != auditv1.LevelMetadata {
				t.Errorf("got %s", text)
			}
			for _, private := range []string{"foreign-", "system:cluster:foreign", "10.0.0.99"} {
				if strings.Contains(text, private) {
					t.Errorf("%q is in %s", private, text)
				}
			}
			if len(text) > 8000 {
				t.Errorf("the event has %d bytes", len(text))
			}
			for ring, r := range map[string]*ring{"changes": log.changes, "others": log.others, "refused": log.refused} {
				if want := ring == cmp.Or(test.ring, "changes"); len(r.clusters) == 1 != want {
					t.Errorf("in the ring %q: %t, want %t", ring, !want, want)
				}
			}
		})
	}
}

func TestLog(t *testing.T) {
	stored := &state{}
	log := newLog(stored)
	serve := func(query string) *httptest.ResponseRecorder {
		response := httptest.NewRecorder()
		next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
		req := httptest.NewRequestWithContext(logicalcluster.With(t.Context(), logicalcluster.MustParseName("own")), http.MethodGet, Path+query, http.NoBody)
		log.WithLog(next, func(*http.Request) bool { return false }, scheme.Codecs).ServeHTTP(response, req)
		return response
	}
	log.ProcessEvents(newEvent(t, audit.SourceWorkspace, nil), newEvent(t, audit.SourceWorkspace, func(e *auditinternal.Event) {
		e.Verb, e.StageTimestamp = "delete", metav1.NewMicroTime(time.UnixMicro(2000))
	}))
	for query, want := range map[string]string{
		"":                                   "update delete",
		"?limit=1":                           "delete",
		"?since=1970-01-01T00:00:00.002Z":    "delete",
		"?since=1970-01-01T00:00:01%2B00:00": "",
	} {
		response := serve(query)
		var list auditv1.EventList
		if err := json.Unmarshal(response.Body.Bytes(), &list); err != nil || response.Code != http.StatusOK || list.Kind != "EventList" || list.APIVersion != "audit.k8s.io/v1" {
			t.Fatalf("%q: got %d %s, %v", query, response.Code, response.Body, err)
		}
		var verbs []string
		for _, event := range list.Items {
			verbs = append(verbs, event.Verb)
		}
		if got := strings.Join(verbs, " "); got != want {
			t.Errorf("%q: got %q, want %q", query, got, want)
		}
	}
	for query, want := range map[string]string{"?limit=0": "limit: got", "?limit=10001": "limit: got", "?limit=x": "limit: got", "?since=yesterday": "since: got"} {
		if response := serve(query); response.Code != http.StatusBadRequest || !strings.Contains(response.Body.String(), want) {
			t.Errorf("%q: got %d %s", query, response.Code, response.Body)
		}
	}
	log.sweep(t.Context())
	if len(log.changes.clusters) != 1 {
		t.Error("a sweep has removed events of a logical cluster that exists")
	}
	stored.err = errors.New("storage does not answer")
	if response := serve(""); response.Code != http.StatusInternalServerError {
		t.Errorf("storage does not answer: got %d, want 500", response.Code)
	}
	log.sweep(t.Context())
	log.ProcessEvents(newEvent(t, audit.SourceWorkspace, nil))
	if got := len(log.read(logicalcluster.MustParseName("own"), 0, 10)); got != 3 {
		t.Errorf("while storage does not answer: %d events, want 3", got)
	}
	stored.err = nil
	log.Forget(logicalcluster.MustParseName("own"))
	if got := len(log.read(logicalcluster.MustParseName("own"), 0, 10)); got != 0 {
		t.Errorf("%d events of a logical cluster that was deleted", got)
	}
	log.ProcessEvents(newEvent(t, audit.SourceWorkspace, nil))
	stored.err = apierrors.NewNotFound(corev1alpha1.Resource("logicalclusters"), "own")
	if response := serve(""); response.Code != http.StatusNotFound {
		t.Errorf("a logical cluster that is gone: got %d, want 404", response.Code)
	}
	log.sweep(t.Context())
	if len(log.changes.clusters) != 0 || log.changes.used != 0 {
		t.Error("a sweep has left events of a logical cluster that is gone")
	}
	log.ProcessEvents(newEvent(t, audit.SourceWorkspace, nil))
	if len(log.changes.clusters) != 0 {
		t.Error("a logical cluster that is gone has an entry")
	}
}

func TestRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); newLog(&state{}).Run(ctx) }()
	cancel()
	<-ended
}

// BenchmarkRequest measures what the log adds to a request. A change is recorded, a read is not.
func BenchmarkRequest(b *testing.B) {
	log := New(Config{Bytes: 32 << 20, Find: func(context.Context) error { return nil }})
	router := audit.NewRouter([]audit.Route{log.Route()})
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	handlers := map[string]http.Handler{"without": next, "with": audit.WithCluster(audit.WithSource(genericapifilters.WithAudit(next, router, router, nil), func(*http.Request) audit.Source { return audit.SourceWorkspace }))}
	for name, handler := range handlers {
		for verb, method := range map[string]string{"get": http.MethodGet, "update": http.MethodPut} {
			b.Run(name+"/"+verb, func(b *testing.B) {
				b.ReportAllocs()
				info := &request.RequestInfo{IsResourceRequest: true, Verb: verb, APIVersion: "v1", Resource: "configmaps", Namespace: "default", Name: "c", Path: "/api/v1/namespaces/default/configmaps/c"}
				ctx := logicalcluster.With(request.WithRequestInfo(b.Context(), info), logicalcluster.MustParseName("own"))
				ctx = request.WithUser(ctx, &user.DefaultInfo{Name: "alice", Groups: []string{"system:authenticated"}})
				for b.Loop() {
					handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, method, info.Path, http.NoBody))
				}
			})
		}
	}
}
