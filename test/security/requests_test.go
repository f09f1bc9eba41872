package security_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// request is one request. The client sends the path byte by byte as given.
type request struct {
	method, path, body, contentType string
	header                          http.Header
}

type httpResponse struct {
	status int
	header http.Header
	body   string
}

func (h httpResponse) object(t *testing.T) map[string]any {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(h.body), &object); err != nil {
		t.Fatalf("%d %s: %v", h.status, h.body, err)
	}
	return object
}

// send sends a request. A request without a response has status 0.
func (e *env) send(t *testing.T, caller *testUser, base string, r request) httpResponse {
	t.Helper()
	at, err := url.Parse(base)
	must(t, err)
	if r.method == "" {
		r.method = http.MethodGet
	}
	req := (&http.Request{
		Method: r.method, URL: &url.URL{Scheme: at.Scheme, Host: at.Host, Opaque: r.path}, Host: at.Host,
		Header: http.Header{"Accept": {jsonType}}, Body: io.NopCloser(strings.NewReader(r.body)), ContentLength: int64(len(r.body)),
		GetBody: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(r.body)), nil }, // servers close unauthenticated connections
	}).WithContext(t.Context())
	if r.body == "" {
		req.Body = http.NoBody
	} else if r.contentType == "" {
		r.contentType = jsonType
	}
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	if caller.token != "" {
		req.Header.Set("Authorization", "Bearer "+caller.token)
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	res, err := caller.client.Do(req)
	if err != nil {
		return httpResponse{body: err.Error()}
	}
	defer res.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(res.Body); err != nil {
		return httpResponse{body: err.Error()}
	}
	return httpResponse{res.StatusCode, res.Header, body.String()}
}

// sendToShard sends a request with send to the shard of the logical cluster in the path, or to the shard of b if the
// path covers all.
func (e *env) sendToShard(t *testing.T, caller *testUser, r request) httpResponse {
	t.Helper()
	_, below, _ := cutLast(r.path, "/clusters/")
	cluster, _, _ := strings.Cut(below, "/")
	if cluster, _, _ = strings.Cut(cluster, "?"); cluster == "*" {
		return e.send(t, caller, e.layout.URL(e.placement.b), r)
	}
	return e.send(t, caller, e.resolveShardURL(t, cluster), r)
}

func cutLast(text, separator string) (before, after string, found bool) {
	at := strings.LastIndex(text, separator)
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+len(separator):], true
}

// do sends a request with send to the shard of the logical cluster, and fails the test if there is no response.
func (e *env) do(t *testing.T, caller *testUser, cluster string, r request) httpResponse {
	t.Helper()
	r.path = "/clusters/" + cluster + r.path
	got := e.send(t, caller, e.resolveShardURL(t, cluster), r)
	if got.status == 0 {
		t.Fatalf("%s %s: %s", r.method, r.path, got.body)
	}
	return got
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
