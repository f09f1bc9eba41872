package web

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

const list = "/clusters/root:org:team/apis/infrastructure.example.org/v1alpha1/caches"

// TestRoutes enumerates what is reachable, by path and verb.
func TestRoutes(t *testing.T) {
	s := newSite(t)
	for _, test := range []struct {
		method, path string
		code         int
		want         string // in the body or the address of a redirect
	}{
		{"GET", "/healthz", 200, "ok"},
		{"POST", "/healthz", 405, ""},
		{"GET", "/", 302, "/ui/"},
		{"POST", "/", 405, ""},
		{"GET", "/ui/", 200, "portal"},
		{"GET", "/ui/app.js", 200, "portal"},
		{"POST", "/ui/", 405, ""},
		{"POST", "/mcp", 200, "mcp"},
		{"POST", "/mcp/other", 404, ""},
		{"GET", "/metrics", 404, ""},
		{"GET", "/debug/pprof/", 404, ""},
		{"GET", "/api", 404, ""},
		{"GET", "/apis", 404, ""},
		{"GET", "/services/apiexport/root/e/clusters/x/api", 404, ""},
		{"GET", "/readyz", 404, ""},
		{"GET", "/installation/rootshards", 404, ""}, // off by default
		// The API of workspaces
		{"GET", list, 200, ""},
		{"HEAD", list, 200, ""},
		{"POST", list, 200, ""},
		{"PUT", list + "/a", 200, ""},
		{"PATCH", list + "/a", 200, ""},
		{"DELETE", list + "/a", 200, ""},
		{"GET", "/clusters/1x2y3z/api/v1/namespaces", 200, ""},
		{"GET", "/clusters/root/openapi/v3", 200, ""},
		{"GET", "/clusters/root%3Aorg/apis", 200, ""},
		{"GET", "/clusters/root:org/metrics", 200, ""}, // its usage
		{"GET", "/clusters/root:org/audit?limit=100", 200, ""},
		{"OPTIONS", list, 405, "MethodNotAllowed"},
		{"TRACE", list, 405, "MethodNotAllowed"},
		{"PROPFIND", list, 405, "MethodNotAllowed"},
		// Others
		{"GET", "/clusters", 307, "/clusters/"},
		{"GET", "/clusters/", 400, "BadRequest"},
		{"GET", "/clusters/root", 400, "BadRequest"},
		{"GET", "/clusters/root/", 404, "NotFound"},
		{"GET", "/clusters/root:org/metrics/", 404, "NotFound"},
		{"GET", "/clusters/root:org/metrics/slis", 404, "NotFound"},
		{"GET", "/clusters/*/metrics", 404, "NotFound"},
		{"GET", "/clusters/system:admin/metrics", 404, "NotFound"},
		{"GET", "/clusters/root:org/audit/", 404, "NotFound"},
		{"GET", "/clusters/root:org/audit/x", 404, "NotFound"},
		{"GET", "/clusters/*/audit", 404, "NotFound"},
		{"POST", "/clusters/root:org/audit", 405, "MethodNotAllowed"},
		{"HEAD", "/clusters/root:org/metrics", 405, ""},
		{"POST", "/clusters/root:org/metrics", 405, "MethodNotAllowed"},
		{"DELETE", "/clusters/root:org/metrics", 405, "MethodNotAllowed"},
		{"GET", "/clusters/root/healthz", 404, "NotFound"},
		{"GET", "/clusters/root/version", 404, "NotFound"},
		{"GET", "/clusters/root/apisx", 404, "NotFound"},
		{"GET", "/clusters/*/apis", 404, "NotFound"},
		{"GET", "/clusters/system:admin/apis", 404, "NotFound"},
		{"GET", "/clusters/Root/apis", 400, "BadRequest"},
		{"GET", "/clusters/root:/apis", 400, "BadRequest"},
		{"GET", "/clusters/root/../services/apis", 400, "BadRequest"},
		{"GET", "/clusters/../apis", 400, "BadRequest"},
		{"GET", "/clusters/%2e%2e/services/x", 400, "BadRequest"},
		{"GET", "/clusters/root/api/%2e%2e/%2e%2e/metrics", 400, "BadRequest"},
		{"GET", "/clusters/root/api%2f..%2f..%2fmetrics", 400, "BadRequest"},
		{"GET", "/clusters/root%2Fapis/apis", 400, "BadRequest"},
		{"GET", "/clusters//root/apis", 400, "BadRequest"},
		{"GET", "/clusters/root/apis//x", 400, "BadRequest"},
		{"GET", "/clusters/root/apis/./x", 400, "BadRequest"},
		{"GET", "/clusters/root/apis/x%5c..%5cy", 400, "BadRequest"},
		{"GET", "/clusters/root/apis/x%00", 400, "BadRequest"},
		{"GET", "/ui/../healthz", 400, "BadRequest"},
	} {
		t.Run(test.method+" "+test.path, func(t *testing.T) {
			s.front.set(nil)
			res, body := s.do(t, test.method, test.path, nil)
			if res.StatusCode != test.code || !strings.Contains(body+res.Header.Get("Location"), test.want) {
				t.Errorf("got %d %q %s, want %d %q", res.StatusCode, res.Header.Get("Location"), body, test.code, test.want)
			}
			passed, _ := s.front.received()
			if want := strings.HasPrefix(test.path, "/clusters/") && test.code == 200; (len(passed) == 1) != want {
				t.Errorf("the front proxy got %d requests", len(passed))
			}
			for name, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Strict-Transport-Security": "max-age=31536000",
				"Cross-Origin-Resource-Policy": "same-origin", "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
			} {
				if got := res.Header.Values(name); !slices.Equal(got, []string{want}) {
					t.Errorf("header %s is %q", name, got)
				}
			}
		})
	}
}

// TestRequest shows that the server forwards only headers on the allow-list, and no identity but the token of the caller.
func TestRequest(t *testing.T) {
	s := newSite(t)
	res, _ := s.do(t, "POST", list+"?fieldManager=portal&dryRun=All", strings.NewReader(`{"a":1}`),
		"Accept", "application/json", "Content-Type", "application/json", "User-Agent", "portal/1",
		"X-Remote-User", "admin", "X-Remote-Group", "system:masters", "X-Remote-Extra-A", "b", "X-Remote-Uid", "1",
		"Impersonate-User", "admin", "Impersonate-Group", "system:masters", "Impersonate-Uid", "1", "Impersonate-Extra-A", "b",
		"Cookie", "session=1", "X-Forwarded-For", "10.0.0.1", "X-Forwarded-Host", "evil.example.org", "Forwarded", "for=10.0.0.1", "X-Real-Ip", "10.0.0.1",
		"X-Kcp-Internal-Deep-Subjectaccessreview", "true", "X-Kubernetes-Sharded-Request", "1", "X-Http-Method-Override", "DELETE",
		"Proxy-Authorization", "Basic YTpi", "Origin", s.url, "Traceparent", "00-1-1-1", "Te", "trailers", "Trailer", "X-Remote-User", "Audit-Id", "forged",
		"Accept-Encoding", "gzip", "Range", "bytes=0-1", "If-Match", "a")
	if res.StatusCode != http.StatusOK {
		t.Fatalf("got %s", res.Status)
	}
	requests, bodies := s.front.received()
	if len(requests) != 1 || bodies[0] != `{"a":1}` {
		t.Fatalf("the front proxy got %d requests, %q", len(requests), bodies)
	}
	got := requests[0]
	want := http.Header{
		"Authorization": {"Bearer of-the-user"}, "Accept": {"application/json"}, "Content-Type": {"application/json"}, "User-Agent": {"portal/1"}, "Content-Length": {"7"},
	}
	if fmt.Sprint(got.Header) != fmt.Sprint(want) {
		t.Errorf("headers %v, want %v", got.Header, want)
	}
	if got.URL.Path != list || got.URL.RawQuery != "fieldManager=portal&dryRun=All" || got.Host != s.front.Listener.Addr().String() || len(got.TLS.PeerCertificates) > 0 {
		t.Errorf("path %q, query %q, host %q, certificates %d", got.URL.Path, got.URL.RawQuery, got.Host, len(got.TLS.PeerCertificates))
	}
}

// TestCredentials shows that the server accepts only bearer tokens as credentials.
func TestCredentials(t *testing.T) {
	s := newSite(t)
	for name, header := range map[string][]string{
		"none":         {"Authorization", ""},
		"basic":        {"Authorization", "", "Authorization", "Basic YTpi"},
		"two":          {"Authorization", "Bearer b"},
		"empty":        {"Authorization", "", "Authorization", "Bearer"},
		"not a token":  {"Authorization", "", "Authorization", "Bearer a b"},
		"only cookies": {"Authorization", "", "Cookie", "token=a"},
	} {
		s.front.set(nil)
		res, body := s.do(t, "GET", list, nil, header...)
		if passed, _ := s.front.received(); res.StatusCode != http.StatusUnauthorized || res.Header.Get("WWW-Authenticate") != Challenge || len(passed) > 0 || !strings.Contains(body, `"reason":"Unauthorized"`) {
			t.Errorf("%s: got %s %v %s, %d passed", name, res.Status, res.Header, body, len(passed))
		}
	}
}

// TestResponse shows that the client receives only headers on the allow-list: no cookies, interim responses, trailers, or other challenges.
func TestResponse(t *testing.T) {
	s := newSite(t)
	s.front.set(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</evil>; rel=preload")
		w.Header().Set("Set-Cookie", "early=1")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "X-Declared")
		for name, value := range map[string]string{
			"Set-Cookie": "session=1", "Access-Control-Allow-Origin": "*", "Content-Security-Policy": "default-src *", "Clear-Site-Data": "*", "Location": "https://evil.example.org",
			"WWW-Authenticate": "Basic", "X-Kubernetes-Pf-Flowschema-Uid": "1", "Server": "a", "Refresh": "0", "Service-Worker-Allowed": "/",
			"Content-Type": "application/json", "Retry-After": "1", "Warning": `299 - "deprecated"`, "Audit-Id": "2", "Cache-Control": "no-cache, private",
		} {
			w.Header().Set(name, value)
		}
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "{}")
		w.Header().Set("X-Declared", "1")
		w.Header().Set(http.TrailerPrefix+"Set-Cookie", "trailer=1")
	})
	res, body := s.do(t, "GET", list, nil)
	if res.StatusCode != http.StatusUnauthorized || body != "{}" || len(res.Trailer) > 0 {
		t.Errorf("got %s %q, trailers %v", res.Status, body, res.Trailer)
	}
	for name, want := range map[string]string{
		"Set-Cookie": "", "Link": "", "Access-Control-Allow-Origin": "", "Clear-Site-Data": "", "Location": "", "X-Kubernetes-Pf-Flowschema-Uid": "", "Server": "", "Refresh": "",
		"Service-Worker-Allowed": "", "WWW-Authenticate": Challenge, "Content-Type": "application/json", "Retry-After": "1", "Warning": `299 - "deprecated"`, "Audit-Id": "2",
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
	} {
		if got := strings.Join(res.Header.Values(name), "|"); got != want {
			t.Errorf("header %s is %q, want %q", name, got, want)
		}
	}
}

// TestOrigins shows that the server refuses requests of pages of other origins.
func TestOrigins(t *testing.T) {
	s := newSite(t)
	for name, test := range map[string]struct {
		header []string
		code   int
	}{
		"no browser":       {nil, 200},
		"the portal":       {[]string{"Sec-Fetch-Site", "same-origin", "Origin", s.url}, 200},
		"an older browser": {[]string{"Origin", s.url}, 200},
		"another page":     {[]string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example.org"}, 403},
		"another port":     {[]string{"Sec-Fetch-Site", "same-site"}, 403},
		"another origin":   {[]string{"Origin", "https://evil.example.org"}, 403},
		"a sandbox":        {[]string{"Origin", "null"}, 403},
	} {
		for _, target := range []string{list, "/mcp"} {
			s.front.set(nil)
			res, body := s.do(t, "POST", target, strings.NewReader("{}"), test.header...)
			if passed, _ := s.front.received(); res.StatusCode != test.code || test.code == 403 && len(passed) > 0 {
				t.Errorf("%s to %s: got %s %s, %d passed", name, target, res.Status, body, len(passed))
			}
			if allowed := res.Header.Get("Access-Control-Allow-Origin"); allowed != "" {
				t.Errorf("%s: other origins may read the response: %q", name, allowed)
			}
		}
	}
}

// TestWatch shows that the server sends each event immediately, and ends the watch when the server stops or the client disconnects.
func TestWatch(t *testing.T) {
	s := newSite(t)
	events, gone := make(chan string), make(chan struct{}, 2)
	s.front.set(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		for {
			select {
			case event := <-events:
				_, _ = io.WriteString(w, event)
				w.(http.Flusher).Flush()
			case <-req.Context().Done():
				gone <- struct{}{}
				return
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+list+"?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer of-the-user")
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for i := range 3 {
		want := fmt.Sprintf("{\"event\":%d}\n", i)
		events <- want
		if got, err := lines.ReadString('\n'); err != nil || got != want {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	cancel()
	<-gone
	// A second watch is open when the server stops, and the cleanup waits for its end.
	req = req.WithContext(t.Context())
	second, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = second.Body.Close() })
}

// send sends a raw request over HTTP/1.1, and returns the response.
func (s *site) send(t *testing.T, header string) *http.Response {
	t.Helper()
	conn, err := tls.Dial("tcp", s.address, s.tls)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, "GET "+list+" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a\r\n"+header+"\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func TestUpgrade(t *testing.T) {
	s := newSite(t)
	res := s.send(t, "Connection: Upgrade\r\nUpgrade: websocket\r\n")
	if passed, _ := s.front.received(); res.StatusCode != http.StatusBadRequest || len(passed) > 0 {
		t.Errorf("got %s, %d passed", res.Status, len(passed))
	}
}

// TestConnectionHeader shows that the Connection header cannot remove the token of a request, which would make it unauthenticated.
func TestConnectionHeader(t *testing.T) {
	s := newSite(t)
	res := s.send(t, "Connection: Authorization, Accept, close\r\nAccept: application/json\r\n")
	passed, _ := s.front.received()
	if len(passed) != 1 || passed[0].Header.Get("Authorization") != "Bearer a" || passed[0].Header.Get("Accept") != "application/json" {
		t.Errorf("got %s, passed %v", res.Status, passed)
	}
}

// TestFrontProxyFails shows the errors for callers, and that a front proxy with another certificate does not receive a token.
func TestFrontProxyFails(t *testing.T) {
	s := newSite(t, func(c *Config) { c.FrontProxy.CAData = nil })
	res, body := s.do(t, "GET", list, nil)
	if passed, _ := s.front.received(); res.StatusCode != http.StatusServiceUnavailable || len(passed) > 0 || strings.Contains(body, "127.0.0.1") || strings.Contains(body, "x509") {
		t.Errorf("got %s %s, %d passed", res.Status, body, len(passed))
	}
	if _, err := NewHandler(t.Context(), Config{FrontProxy: s.front.config(), Limits: DefaultLimits()}); err != nil {
		t.Error(err)
	}
	plain := s.front.config()
	plain.Host = "http://kcp.example.org"
	if _, err := NewHandler(t.Context(), Config{FrontProxy: plain, Limits: DefaultLimits()}); err == nil {
		t.Error("a front proxy without TLS is accepted")
	}
}

// TestCertificateReload replaces the serving certificate while the server runs.
func TestCertificateReload(t *testing.T) {
	s := newSite(t)
	ca := s.writeCertificate(t)
	eventually(t, "the new certificate to be served", func(ctx context.Context) error {
		conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: ca}}).DialContext(ctx, "tcp", s.address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}
