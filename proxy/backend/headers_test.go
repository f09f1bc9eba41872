package backend

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-base/metrics"

	"github.com/atoll-dev/atoll/proxy/identity"
)

// Headers of clients that reach a backend.
var forwarded = []string{
	"Accept", "Accept-Encoding", "Content-Type", "Content-Encoding", "Content-Length", "User-Agent",
	"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range", "Range", "Cache-Control",
	"Authorization",
	"Impersonate-User", "Impersonate-Uid", "Impersonate-Group", "Impersonate-Extra-Scopes", "Impersonate-Extra-Authentication.kcp.io%2fscopes",
	"X-Stream-Protocol-Version", "Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Protocol", "Sec-Websocket-Extensions",
	"Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers",
	"Kubectl-Command", "Kubectl-Session", "Audit-Id", "X-Request-Id", "Traceparent", "Tracestate", "Baggage",
	"X-Kubernetes-Sharded-Request", "X-Kcp-Virtual-Resource-Hops", "X-Atoll-Mount-Hops", "X-Kcp-Internal-Deep-Subjectaccessreview",
}

// Headers of clients that do not.
var dropped = []string{
	"X-Remote-User", "X-Remote-Group", "X-Remote-Uid", "X-Remote-Extra-Scopes", "X-Remote-Anything",
	"X_remote_user", "X-Remote_Group", "x-remote-user", "X_Remote_Extra_Scopes",
	"Impersonate_user", "Impersonate_Extra_Scopes", "impersonate-user", "Impersonate-Anything",
	"Cookie", "Proxy-Authorization", "Authorization_", "X-Forwarded-User", "X-Forwarded-Email", "X-Auth-Request-User",
	"Forwarded", "X-Real-Ip", "Via", "Te", "Trailer", "Keep-Alive", "Proxy-Connection", "Expect",
	"X-Peer-Proxied", "X-Kubernetes-Peer-Proxied", "X-Http-Method-Override", "X-Anything", "Referer", "Date",
}

func TestOutboundHeaders(t *testing.T) {
	in := http.Header{}
	for _, name := range slices.Concat(forwarded, dropped, []string{"Connection", "Upgrade"}) {
		in[name] = []string{"1", "2"}
	}
	out := outboundHeaders(in, identity.DefaultHeaderNames())
	for _, name := range forwarded {
		if name != "Content-Length" && len(out[name]) != 2 { // the transport writes the length
			t.Errorf("%s: got %v, want both values", name, out[name])
		}
	}
	for _, name := range dropped {
		if values, ok := out[name]; ok {
			t.Errorf("%s: got %v, want none", name, values)
		}
	}
	for name := range outboundHeaders(in, identity.HeaderNames{User: "Impersonate-User", Group: "Impersonate-Group", ExtraPrefix: "Impersonate-Extra-"}) {
		if strings.HasPrefix(name, "Impersonate") && name != "Impersonate-Uid" {
			t.Errorf("%s is sent although the backend reads the user from it", name)
		}
	}
}

func FuzzOutboundHeaders(f *testing.F) {
	for _, seed := range slices.Concat(forwarded, dropped) {
		f.Add(seed)
	}
	names := identity.DefaultHeaderNames()
	f.Fuzz(func(t *testing.T, name string) {
		for kept := range outboundHeaders(http.Header{name: {"v"}}, names) {
			canonical := strings.ToLower(strings.ReplaceAll(http.CanonicalHeaderKey(kept), "_", "-"))
			if strings.HasPrefix(canonical, "x-remote-") {
				t.Fatalf("%q was kept", kept)
			}
		}
	})
}

// received is what a backend received.
type received struct {
	Method, URI, Host, Body string
	Header                  http.Header
}

func TestOutboundRequest(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		_ = json.NewEncoder(w).Encode(received{req.Method, req.RequestURI, req.Host, string(body), req.Header})
	}))
	defer server.Close()
	target, err := url.Parse(server.URL + "/base/clusters/c1/api%2Fv1")
	if err != nil {
		t.Fatal(err)
	}
	forwarder := NewForwarder(http.DefaultTransport, identity.DefaultHeaderNames(), NewMetrics(metrics.NewKubeRegistry().MustRegister))
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		forwarder.Forward(w, req, "shard", target, &user.DefaultInfo{Name: "alice", UID: "u", Groups: []string{"devs"}, Extra: map[string][]string{"scopes": {"cluster:c1"}}})
	}))
	defer proxy.Close()

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, proxy.URL+"/clusters/root/api?watch=1&labelSelector=a%3Db", strings.NewReader("content"))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "kcp.example"
	for _, name := range slices.Concat(forwarded, dropped) {
		switch name {
		case "Content-Length", "Expect", "Te", "Trailer":
		default:
			req.Header[name] = []string{"sent"}
		}
	}
	res, err := proxy.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var got received
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Method != http.MethodPost || got.URI != "/base/clusters/c1/api%2Fv1?watch=1&labelSelector=a%3Db" || got.Host != "kcp.example" || got.Body != "content" {
		t.Errorf("got %+v", got)
	}
	// The headers are those of the client that pass, those of the user, and X-Forwarded-*. There is no other.
	want := append(slices.Clone(forwarded), "X-Remote-User", "X-Remote-Group", "X-Remote-Extra-Scopes", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto")
	for _, name := range want {
		if len(got.Header[name]) == 0 {
			t.Errorf("%s is missing", name)
		}
	}
	for name, values := range got.Header {
		switch {
		case !slices.Contains(want, name):
			t.Errorf("%s: %v is sent", name, values)
		case strings.HasPrefix(name, "X-Remote-") && slices.Contains(values, "sent"):
			t.Errorf("%s is that of the client: %v", name, values)
		}
	}
	if got.Header.Get("X-Remote-User") != "alice" || got.Header.Get("X-Remote-Group") != "devs" || got.Header.Get("X-Remote-Extra-Scopes") != "cluster:c1" {
		t.Errorf("identity headers: %v", got.Header)
	}
}
