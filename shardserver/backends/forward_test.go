package backends

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

// newProxy returns a server that forwards to a backend as a user.
func newProxy(t *testing.T, backend http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(backend)
	t.Cleanup(server.Close)
	target, err := url.Parse(server.URL + "/target")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	caller := &user.DefaultInfo{Name: "alice", UID: "1", Groups: []string{"system:masters", "team"}, Extra: map[string][]string{
		"authorization.kcp.io/warrant": {"{}"}, "authentication.kcp.io/scopes": {"cluster:a"},
	}}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		(&Client{transport: transport}).Forward(w, req, target, caller, 2, func(err error) { http.Error(w, err.Error(), http.StatusBadGateway) })
	}))
	t.Cleanup(proxy.Close)
	return proxy
}

func send(t *testing.T, proxy *httptest.Server, header http.Header) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, proxy.URL+"/other?a=b", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	res, err := proxy.Client().Transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	return res, string(body)
}

func TestRequestToBackend(t *testing.T) {
	var got *http.Request
	proxy := newProxy(t, func(_ http.ResponseWriter, req *http.Request) { got = req })
	header := http.Header{
		"Accept": {"text/plain"}, "Connection": {"X-Remote-User, Upgrade"}, "Upgrade": {"websocket"},
		"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.dG9rZW4, v5.channel.k8s.io"}, "Sec-Websocket-Key": {"x"},
	}
	for _, name := range []string{"Authorization", "Cookie", "Impersonate-User", "X-Remote-Uid", "X-Remote-User", "X-Remote-Extra-Other", "X_Remote_User", "X-Forwarded-For", "X-Kcp-Virtual-Resource-Hops", "Forwarded", "Origin"} {
		header[name] = []string{"forged"}
	}
	if res, body := send(t, proxy, header); res.StatusCode != http.StatusOK {
		t.Fatalf("%d: %s", res.StatusCode, body)
	}
	if text := fmt.Sprint(got.Header); strings.Contains(text, "forged") || strings.Contains(text, "bearer") || strings.Contains(text, "masters") || strings.Contains(text, "warrant") {
		t.Errorf("the backend received %s", text)
	}
	for name, want := range map[string]string{
		"X-Remote-User": "alice", "X-Remote-Group": "team", "X-Remote-Extra-Authentication.kcp.io%2fscopes": "cluster:a", "X-Kcp-Virtual-Resource-Hops": "2",
		"Accept": "text/plain", "Upgrade": "websocket", "Sec-Websocket-Protocol": "v5.channel.k8s.io", "Sec-Websocket-Key": "x", "X-Remote-Uid": "",
	} {
		if got.Header.Get(name) != want {
			t.Errorf("%s: got %q, want %q", name, got.Header.Get(name), want)
		}
	}
	if got.URL.String() != "/target?a=b" || got.Method != http.MethodPost {
		t.Errorf("got %s %s", got.Method, got.URL)
	}
}

func TestResponseOfBackend(t *testing.T) {
	raw := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			connection, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer connection.Close()
			_, _ = io.WriteString(connection, text)
		}
	}
	for name, tc := range map[string]struct {
		serve  http.HandlerFunc
		header http.Header
		code   int
		body   string
	}{
		"headers of the list": {func(w http.ResponseWriter, _ *http.Request) {
			for _, name := range []string{"Set-Cookie", "X-Remote-User", "Www-Authenticate", "Access-Control-Allow-Origin", "Location", "Audit-Id"} {
				w.Header().Set(name, "forged")
			}
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, "busy")
		}, nil, http.StatusTooManyRequests, "busy"},
		"trailers":                         {raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Remote-User\r\n\r\n1\r\na\r\n0\r\nX-Remote-User: forged\r\n\r\n"), nil, http.StatusOK, "a"},
		"interim responses":                {raw("HTTP/1.1 103 Early Hints\r\nSet-Cookie: forged\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"), nil, http.StatusOK, "a"},
		"a redirect":                       {raw("HTTP/1.1 307 Temporary Redirect\r\nLocation: https://example.com/\r\nContent-Length: 0\r\n\r\n"), nil, http.StatusBadGateway, errRedirect.Error() + "\n"},
		"an upgrade that nobody asked for": {raw("HTTP/1.1 101 Switching Protocols\r\n\r\n"), nil, http.StatusBadGateway, errUpgrade.Error() + "\n"},
		"an upgrade to another protocol": {
			raw("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n"),
			http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}, http.StatusBadGateway, "backend tried to switch protocol \"other\" when \"echo\" was requested\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			header := tc.header
			if header == nil {
				header = http.Header{}
			}
			res, body := send(t, newProxy(t, tc.serve), header)
			if res.StatusCode != tc.code || body != tc.body || strings.Contains(fmt.Sprint(res.Header, res.Trailer), "forged") {
				t.Errorf("got %d %v %v %q", res.StatusCode, res.Header, res.Trailer, body)
			}
		})
	}
}

func TestFilesOfBackends(t *testing.T) {
	if _, err := New(Files{CA: "missing", ClientCert: "missing", ClientKey: "missing"}); err == nil {
		t.Error("missing files are accepted")
	}
}
