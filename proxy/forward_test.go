package proxy_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/atoll-dev/atoll/proxy/options"
)

func TestUpgrades(t *testing.T) {
	i := newEnv(t)
	alice := i.clientCA.pair(t, "alice")
	for _, protocol := range []string{"SPDY/3.1", "websocket"} {
		t.Run(protocol, func(t *testing.T) {
			conn := i.dial(&alice)
			defer conn.Close()
			_, err := io.WriteString(conn, "POST /clusters/root:org:team/exec HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\nX-Remote-User: evil\r\n\r\n")
			must(t, err)
			r := bufio.NewReader(conn)
			res, err := http.ReadResponse(r, nil)
			must(t, err)
			if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("X-Seen-User") != "alice" {
				t.Fatalf("%s %v", res.Status, res.Header)
			}
			for _, line := range []string{"hello\n", "again\n"} {
				_, err := io.WriteString(conn, line)
				must(t, err)
				if got, err := r.ReadString('\n'); err != nil || got != line {
					t.Fatalf("echo %q, %v", got, err)
				}
			}
		})
	}
}

func TestStreamsAreFlushed(t *testing.T) {
	i := newEnv(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, i.url+"/clusters/root/stream?watch=true", nil)
	must(t, err)
	res, err := i.clientFor("alice").Do(req)
	must(t, err)
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for range 3 {
		if !lines.Scan() || lines.Text() != "tick" {
			t.Fatalf("got %q, %v", lines.Text(), lines.Err())
		}
	}
}

// TestEarlyResponseEndsRequest: a client that receives an error may stop sending without ending its request. The
// response must end nevertheless.
func TestEarlyResponseEndsRequest(t *testing.T) {
	i := newEnv(t)
	body, unused := io.Pipe()
	defer unused.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, i.url+"/clusters/root/busy", body)
	must(t, err)
	req.ContentLength = 1000
	res, err := i.clientFor("alice").Do(req)
	must(t, err)
	defer res.Body.Close()
	if _, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusTooManyRequests || res.ProtoMajor != 2 {
		t.Errorf("%s over %s: %v", res.Status, res.Proto, err)
	}
}

// TestMalformedBodies: a body that cannot be read is an error of the client, not of the shard.
func TestMalformedBodies(t *testing.T) {
	i := newEnv(t)
	alice := i.clientCA.pair(t, "alice")
	for name, tc := range map[string]struct {
		chunks string
		status int
	}{
		"valid chunks":                         {"5\r\nhello\r\n0\r\n\r\n", http.StatusOK},
		"a valid extension":                    {"5;name=value\r\nhello\r\n0\r\n\r\n", http.StatusOK},
		"a size that is no number":             {"zz\r\nhello\r\n0\r\n\r\n", http.StatusBadRequest},
		"a size that is out of range":          {"11111111111111111\r\nhello\r\n0\r\n\r\n", http.StatusBadRequest},
		"a chunk that is longer than its size": {"5\r\nhello, world\r\n0\r\n\r\n", http.StatusBadRequest},
		"an extension with a line feed":        {"5;a\nb\r\nhello\r\n0\r\n\r\n", http.StatusBadRequest},
		"an extension that is too long":        {"5;" + strings.Repeat("a", 5000) + "\r\nhello\r\n0\r\n\r\n", http.StatusBadRequest},
		"a second chunk with a malformed size": {"5\r\nhello\r\n-1\r\nhello\r\n0\r\n\r\n", http.StatusBadRequest},
		"a trailer that is no header":          {"5\r\nhello\r\n0\r\nno header\r\n\r\n", http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			conn := i.dial(&alice)
			defer conn.Close()
			_, err := io.WriteString(conn, "POST /clusters/root/read HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"+tc.chunks)
			must(t, err)
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must(t, err)
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			must(t, err)
			if res.StatusCode != tc.status || tc.status == http.StatusBadRequest && !strings.Contains(string(body), "reading the body of the request") {
				t.Errorf("%s: %s", res.Status, body)
			}
		})
	}
}

func TestResponsesOfShardsAreUnchanged(t *testing.T) {
	i := newEnv(t)
	res, _, err := i.do(i.clientFor("alice"), http.MethodGet, "/clusters/root/redirect", nil)
	must(t, err)
	if res.StatusCode != http.StatusFound || res.Header.Get("Location") != "https://redirect.example/" {
		t.Errorf("a redirect: %s %v", res.Status, res.Header)
	}
	res, body, err := i.do(i.clientFor("alice"), http.MethodGet, "/clusters/root/busy", nil)
	must(t, err)
	if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "1" || !strings.Contains(string(body), "Not found on this shard") {
		t.Errorf("a 429: %s %v %s", res.Status, res.Header, body)
	}
}

// TestIndexIsSynced changes objects of the shards and waits until clients see the change.
func TestIndexIsSynced(t *testing.T) {
	i := newEnv(t)
	alice := i.clientFor("alice")
	expect := func(path, backend string, status int) { t.Helper(); i.expectRoute(alice, path, backend, status) }
	expect("root:org:new", "", 403)
	i.alpha.putCluster("new1")
	i.root.putWorkspace("org1", "new", "new1", "Scheduling")
	expect("new1", "alpha", 200)
	expect("root:org:new", "", 403)
	i.root.putWorkspace("org1", "new", "new1", "Initializing")
	expect("root:org:new", "alpha", 200)
	i.root.putWorkspace("org1", "new", "new1", "Unavailable")
	expect("root:org:new", "", 503)
	expect("new1", "alpha", 200)
	i.root.putWorkspace("org1", "new", "new1", "Ready")
	expect("root:org:new", "alpha", 200)
	i.root.remove("workspaces", "org1", "new")
	expect("root:org:new", "", 403)
	expect("new1", "alpha", 200)
	i.alpha.remove("logicalclusters", "new1", "cluster")
	expect("new1", "", 403)

	// The base URL of the shard changes.
	beta := newFakeServer(t, "beta", i.serverCA, i.headerCA)
	beta.putCluster("team1")
	i.root.put("shards", "root", "alpha", map[string]any{"spec": map[string]any{"baseURL": beta.URL}})
	expect("root:org:team", "beta", 200)
	expect("broken1", "", 403)

	// Its base URL is removed, invalid, and valid again.
	i.root.put("shards", "root", "alpha", map[string]any{"spec": map[string]any{}})
	expect("team1", "", 403)
	i.root.put("shards", "root", "alpha", map[string]any{"spec": map[string]any{"baseURL": "https://%zz"}})
	expect("team1", "", 500)
	i.root.put("shards", "root", "alpha", map[string]any{"spec": map[string]any{"baseURL": beta.URL}})
	expect("team1", "beta", 200)

	// The shard stops: its entries are kept, and requests for it get 503.
	beta.stop()
	expect("root:org:team", "", 503)
	for method, retry := range map[string]string{http.MethodGet: "1", http.MethodPost: "1", http.MethodDelete: "1"} {
		res, body, err := i.do(alice, method, "/clusters/root:org:team/api", nil)
		must(t, err)
		if res.StatusCode != 503 || res.Header.Get("Retry-After") != retry || !strings.Contains(string(body), `"reason":"ServiceUnavailable"`) {
			t.Errorf("%s: %d, Retry-After %q, %s", method, res.StatusCode, res.Header.Get("Retry-After"), body)
		}
	}
	if status, _, _ := i.get(alice, "/readyz", nil); status != 200 {
		t.Errorf("the proxy is not ready because one shard is down: %d", status)
	}

	// It is deleted.
	i.root.remove("shards", "root", "alpha")
	expect("team1", "", 403)
	expect("root:org", "root", 200)
}

// TestStartWithUnavailableShard: the proxy starts while a shard is down.
func TestStartWithUnavailableShard(t *testing.T) {
	i := newEnv(t, func(i *env, _ *options.Options) { i.alpha.stop() })
	alice := i.clientFor("alice")
	for path, want := range map[string]int{
		"root:org":      200,
		"root:org:team": 503, // its workspace is indexed, its shard is not synced
		"team1":         503,
		"root:unknown":  403,
	} {
		res, body, err := i.do(alice, http.MethodGet, "/clusters/"+path+"/api", nil)
		must(t, err)
		if res.StatusCode != want || want == 503 && res.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d, want %d; %s", path, res.StatusCode, want, body)
		}
	}
}

// TestUntrustedShard: no request is sent to a shard with a certificate of another CA.
func TestUntrustedShard(t *testing.T) {
	i := newEnv(t)
	evil := newFakeServer(t, "evil", newAuthority(t, "evil-ca"), i.headerCA)
	i.root.put("shards", "root", "alpha", map[string]any{"spec": map[string]any{"baseURL": evil.URL}})
	i.root.allowMetrics = map[string]bool{"alice": true}
	alice := i.clientFor("alice")
	i.eventually("503", func() bool {
		status, _, _ := i.get(alice, "/clusters/team1/api", nil)
		return status == 503
	})
	_, _, page := i.get(alice, "/metrics", nil)
	for _, series := range []string{
		`kcp_listener_tls_connection_error{error_type="unknown_ca",shard="alpha"}`,
		`kcp_indexed_logicalclusters{shard="root"} 4`,
		`kcp_indexed_logicalclusters{shard="alpha"} 0`,
		`atoll_front_proxy_index_current{source="shards"} 1`,
		`atoll_front_proxy_index_current{source="shard alpha"} 0`,
		`atoll_front_proxy_index_current{source="shard root"} 1`,
		`proxy_request_duration_seconds_count{code="503",method="GET"}`,
		`process_resident_memory_bytes`,
	} {
		if !strings.Contains(page, series) {
			t.Errorf("/metrics lacks %s", series)
		}
	}
}

// TestGracefulShutdown: watches end at once, and the port is closed afterwards.
func TestGracefulShutdown(t *testing.T) {
	i := newEnv(t)
	res, err := i.clientFor("alice").Get(i.url + "/clusters/root/stream?watch=true")
	must(t, err)
	defer res.Body.Close()
	started := time.Now()
	i.stop()
	if took := time.Since(started); took > 4*time.Second {
		t.Errorf("an open watch delayed the shutdown by %s", took)
	}
	if _, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Log("the watch ended without an error")
	}
	if _, err := net.DialTimeout("tcp", strings.TrimPrefix(i.url, "https://"), time.Second); err == nil {
		t.Error("the port is still open")
	}
}

// TestBackendCertificatesAreReloaded replaces the client certificate of the proxy.
func TestBackendCertificatesAreReloaded(t *testing.T) {
	i := newEnv(t)
	alice := i.clientFor("alice")
	renewed, renewedKey := i.headerCA.issue(t, "kcp-front-proxy-2")
	// Between both files the pair is invalid, and the former pair is used.
	for _, file := range []struct {
		name string
		data []byte
	}{{"header.crt", renewed}, {"header.key", renewedKey}} {
		must(t, os.WriteFile(i.file("tmp"), file.data, 0o600))
		must(t, os.Rename(i.file("tmp"), i.file(file.name)))
		if status, _, _ := i.get(alice, "/clusters/root/api", nil); status != 200 {
			t.Fatalf("status %d while the pair is being replaced", status)
		}
	}
	i.eventually("the new certificate is presented", func() bool {
		_, got, _ := i.get(alice, "/clusters/root/api", nil)
		return got.Peer == "kcp-front-proxy-2"
	})
}

func TestCORS(t *testing.T) {
	i := newEnv(t, func(_ *env, o *options.Options) {
		o.CORSAllowedOrigins = []string{"^https://console\\.example$"}
	})
	for origin, want := range map[string]string{"https://console.example": "https://console.example", "https://evil.example": ""} {
		res, _, err := i.do(i.clientFor("alice"), http.MethodGet, "/clusters/root/api", http.Header{"Origin": {origin}})
		must(t, err)
		if got := res.Header.Get("Access-Control-Allow-Origin"); got != want {
			t.Errorf("origin %s: allowed %q, want %q", origin, got, want)
		}
	}
}

func BenchmarkLatency(b *testing.B) {
	i := newEnv(b)
	pair := i.headerCA.pair(b, "kcp-front-proxy")
	direct := i.client(&pair)
	through := i.clientFor("alice", "devs")
	for name, do := range map[string]func() (*http.Response, error){
		"direct":  func() (*http.Response, error) { return direct.Get(i.alpha.URL + "/base/clusters/team1/api") },
		"proxied": func() (*http.Response, error) { return through.Get(i.url + "/clusters/root:org:team/api") },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var took []time.Duration
			for b.Loop() {
				started := time.Now()
				res, err := do()
				if err != nil || res.StatusCode != 200 {
					b.Fatalf("%v %v", res, err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				took = append(took, time.Since(started))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
		})
	}
}
