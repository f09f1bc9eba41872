package proxy_test

import (
	"crypto/tls"
	"net/http"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/options"
)

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(
			goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
			goleak.IgnoreTopFunction("k8s.io/client-go/util/workqueue.(*Typed[...]).updateUnfinishedWorkLoop"),
			// The fake servers are closed in the background.
			goleak.IgnoreAnyFunction("net/http/httptest.(*Server).Close"),
		); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// TestRoutesAndIdentities covers the tables of the contract: it sends each path with each identity.
func TestRoutesAndIdentities(t *testing.T) {
	home := logicalcluster.HomeName("alice").String()
	routes := map[string]struct {
		path string
		// fixed is the status for all identities; 0 if the request of a valid identity is forwarded.
		fixed     int
		backend   string
		forwarded string
	}{
		"a name":                           {path: "/clusters/team1/api/v1", backend: "alpha", forwarded: "/clusters/team1/api/v1"},
		"a path":                           {path: "/clusters/root:org:team/api/v1?watch=0", backend: "alpha", forwarded: "/clusters/team1/api/v1"},
		"an escaped colon":                 {path: "/clusters/root%3Aorg/api/v1", backend: "root", forwarded: "/clusters/org1/api/v1"},
		"an escaped rest":                  {path: "/clusters/root:org/api/a%2Fb%20c", backend: "root", forwarded: "/clusters/org1/api/a%2Fb%20c"},
		"the root of a cluster":            {path: "/clusters/root/", backend: "root", forwarded: "/clusters/root/"},
		"a home path":                      {path: "/clusters/user:alice/api", backend: "root", forwarded: "/clusters/" + home + "/api"},
		"a mount":                          {path: "/clusters/root:org:mount:below/api", backend: "services", forwarded: "/mounted/api"},
		"the name of an Unavailable one":   {path: "/clusters/broken1/api", backend: "alpha", forwarded: "/clusters/broken1/api"},
		"services":                         {path: "/services/apiexport/root/x/clusters/*/api", backend: "services", forwarded: "/vw/services/apiexport/root/x/clusters/*/api"},
		"services of an agent":             {path: "/services/syncer/root:x/clusters/*/api", backend: "services", forwarded: "/vw/services/syncer/root:x/clusters/*/api"},
		"services without a cluster":       {path: "/services/thing", backend: "services", forwarded: "/vw/services/thing"},
		"services without a trailing path": {path: "/services", backend: "services", forwarded: "/vw/services"},
		"services of a known cluster":      {path: "/services/v/clusters/root:org/api", backend: "services", forwarded: "/vw/services/v/clusters/root:org/api"},
		"a placeholder":                    {path: "/e/org1/x/y", backend: "services", forwarded: "/e/org1/x/y"},

		"services of an unknown cluster": {path: "/services/v/clusters/unknown/api", fixed: 403},
		"services of an Unavailable one": {path: "/services/v/clusters/root:org:broken/api", fixed: 503},
		"a placeholder that is unknown":  {path: "/e/unknown/x/y", fixed: 403},
		"an unknown name":                {path: "/clusters/unknown/api", fixed: 403},
		"an unknown path":                {path: "/clusters/root:unknown/api", fixed: 403},
		"a workspace in Scheduling":      {path: "/clusters/root:org:early/api", fixed: 403},
		"the wildcard":                   {path: "/clusters/*/api", fixed: 403},
		"the wildcard, escaped":          {path: "/clusters/%2A/api", fixed: 403},
		"a system cluster":               {path: "/clusters/system:admin/api", fixed: 403},
		"a malformed name":               {path: "/clusters/Root/api", fixed: 403},
		"nothing after /clusters/":       {path: "/clusters/", fixed: 403},
		"a cluster without a slash":      {path: "/clusters/root", fixed: 403},
		"an escaped slash in the name":   {path: "/clusters/root%2Fapi/x", fixed: 403},
		"escaped dot segments":           {path: "/clusters/root/%2e%2e/system:admin/api", fixed: 403},
		"an escaped slash after them":    {path: "/clusters/root/..%2Fsystem:admin/api", fixed: 403},
		"dot segments in services":       {path: "/services/%2e%2e/clusters/root/api", fixed: 403},
		"an escaped prefix":              {path: "/%63lusters/root/api", fixed: 403},
		"an Unavailable workspace":       {path: "/clusters/root:org:broken/api", fixed: 503},
		"no mapping":                     {path: "/version", fixed: 404},
		"no mapping, api":                {path: "/api/v1/namespaces", fixed: 404},
		"no mapping, healthz":            {path: "/healthz", fixed: 404},
		"livez":                          {path: "/livez", fixed: 200},
		"readyz":                         {path: "/readyz", fixed: 200},
	}

	type identity struct {
		client  func(*env) *http.Client
		header  http.Header
		status  int    // 0 for forwarded
		user    string // as the backend receives it
		groups  string
		bearer  string
		metrics int
	}
	unknownCA := newAuthority(t, "unknown-ca")
	withCert := func(i *env) *http.Client {
		return i.clientFor("alice", "devs", "system:masters", "system:kcp:initializer:x", "admins")
	}
	withUnknownCA := func(i *env) *http.Client {
		pair := unknownCA.pair(i.t, "mallory", "system:masters")
		return i.client(&pair)
	}
	without := func(i *env) *http.Client { return i.client(nil) }
	token := func(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

	for mode, tc := range map[string]struct {
		configure  func(*env, *options.Options)
		identities map[string]identity
	}{
		"client certificates only": {func(*env, *options.Options) {}, map[string]identity{
			"anonymous":                 {client: without, metrics: 401},
			"a token is not verified":   {client: without, header: token("shard-token"), bearer: "Bearer shard-token", metrics: 401},
			"alice":                     {client: withCert, user: "alice", groups: "admins,devs,system:authenticated", metrics: 200},
			"an unknown CA":             {client: withUnknownCA, status: 401, metrics: 401},
			"an unknown CA and a token": {client: withUnknownCA, header: token("shard-token"), status: 401, metrics: 401},
		}},
		"with a token file": {func(i *env, o *options.Options) { o.Authentication.TokenFile.TokenFile = i.file("token.csv") }, map[string]identity{
			"anonymous":                      {client: without, status: 401, metrics: 401},
			"a bad token":                    {client: without, header: token("bad"), status: 401, metrics: 401},
			"bob":                            {client: without, header: token("bob-token"), user: "bob", groups: "devs,system:authenticated", metrics: 403},
			"alice":                          {client: withCert, user: "alice", groups: "admins,devs,system:authenticated", metrics: 200},
			"an unknown CA but a good token": {client: withUnknownCA, header: token("bob-token"), user: "bob", groups: "devs,system:authenticated", metrics: 403},
		}},
		"with groups to pass on": {func(_ *env, o *options.Options) { o.PassOnGroups = []string{"dev*", "system:masters"} }, map[string]identity{
			"alice": {client: withCert, user: "alice", groups: "devs", metrics: 200},
		}},
		"with an empty drop list": {func(_ *env, o *options.Options) { o.DropGroups = []string{""} }, map[string]identity{
			"alice": {client: withCert, user: "alice", groups: "admins,devs,system:authenticated,system:kcp:initializer:x,system:masters", metrics: 200},
		}},
	} {
		t.Run(mode, func(t *testing.T) {
			i := newEnv(t, tc.configure)
			i.root.putCluster(home)
			i.root.allowMetrics = map[string]bool{"alice": true}
			i.eventually("the home cluster is indexed", func() bool {
				status, _, _ := i.get(withCert(i), "/clusters/"+home+"/", nil)
				return status == 200
			})
			for caller, id := range tc.identities {
				client := id.client(i)
				for target, route := range routes {
					t.Run(caller+"/"+target, func(t *testing.T) {
						status, got, body := i.get(client, route.path, id.header)
						want := route.fixed
						if want == 0 {
							want = id.status
						}
						if want == 0 {
							want = 200
						}
						if status != want {
							t.Fatalf("status %d, want %d: %s", status, want, body)
						}
						switch {
						case status == 403:
							if !strings.Contains(body, `"reason":"Forbidden"`) || !strings.Contains(body, "workspace access not permitted") || !strings.Contains(body, `User \"\"`) {
								t.Errorf("body: %s", body)
							}
						case status == 401:
							if !strings.Contains(body, `"reason":"Unauthorized"`) {
								t.Errorf("body: %s", body)
							}
						case status == 503:
							if strings.TrimSpace(body) != "Not available." {
								t.Errorf("body: %q", body)
							}
						case route.fixed == 0:
							path := strings.TrimPrefix(got.Path, "/base")
							if got.Backend != route.backend || path != route.forwarded {
								t.Errorf("forwarded to %s %s, want %s %s", got.Backend, path, route.backend, route.forwarded)
							}
							if user, groups := got.Header.Get("X-Remote-User"), strings.Join(got.Header["X-Remote-Group"], ","); user != id.user || groups != id.groups {
								t.Errorf("the backend received user %q, groups %q; want %q, %q", user, groups, id.user, id.groups)
							}
							bearer := id.bearer
							if target == "a mount" {
								bearer = "" // a tenant defines its URL
							}
							if authorization := got.Header.Get("Authorization"); authorization != bearer {
								t.Errorf("the backend received authorization %q, want %q", authorization, bearer)
							}
							if got.Host != strings.TrimPrefix(i.url, "https://") || got.Peer != "kcp-front-proxy" || got.Proto != "HTTP/2.0" {
								t.Errorf("host %q, peer %q, protocol %q", got.Host, got.Peer, got.Proto)
							}
						}
					})
				}
				t.Run(caller+"/metrics", func(t *testing.T) {
					if status, _, body := i.get(client, "/metrics", id.header); status != id.metrics {
						t.Errorf("status %d, want %d: %.200s", status, id.metrics, body)
					}
				})
			}
		})
	}
}

func TestHandshakeAdvertisesBothClientCAs(t *testing.T) {
	i := newEnv(t, func(i *env, o *options.Options) {
		o.Authentication.RequestHeader.ClientCAFile = i.file("header-ca.crt")
		o.Authentication.RequestHeader.AllowedNames = []string{"mounts"}
		o.Authentication.RequestHeader.UsernameHeaders = []string{"X-Remote-User"}
		o.Authentication.RequestHeader.GroupHeaders = []string{"X-Remote-Group"}
		o.Authentication.RequestHeader.ExtraHeaderPrefixes = []string{"X-Remote-Extra-"}
	})
	var advertised [][]byte
	conn, err := tls.Dial("tcp", strings.TrimPrefix(i.url, "https://"), &tls.Config{InsecureSkipVerify: true,
		GetClientCertificate: func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			advertised = info.AcceptableCAs
			return &tls.Certificate{}, nil
		}})
	must(t, err)
	defer conn.Close()
	must(t, conn.Handshake())
	if len(advertised) != 2 {
		t.Errorf("%d CAs advertised, want the client CA and the request header CA", len(advertised))
	}

	header := http.Header{"X-Remote-User": {"carol"}, "X-Remote-Group": {"devs", "system:masters"}, "X-Remote-Extra-Authentication.kcp.io%2fscopes": {"cluster:root"}}
	mounts := i.headerCA.pair(t, "mounts")
	if status, got, body := i.get(i.client(&mounts), "/clusters/root/api", header); status != 200 || got.Header.Get("X-Remote-User") != "carol" ||
		strings.Join(got.Header["X-Remote-Group"], ",") != "devs,system:authenticated" || got.Header.Get("X-Remote-Extra-Authentication.kcp.io%2fscopes") != "cluster:root" {
		t.Errorf("an allowed proxy: %d %v %s", status, got.Header, body)
	}
	other := i.headerCA.pair(t, "other")
	if status, _, _ := i.get(i.client(&other), "/clusters/root/api", header); status != 401 {
		t.Errorf("another proxy: %d", status)
	}
	if status, got, _ := i.get(i.clientFor("alice"), "/clusters/root/api", header); status != 200 || got.Header.Get("X-Remote-User") != "alice" || got.Header.Get("X-Remote-Extra-Authentication.kcp.io%2fscopes") != "" {
		t.Errorf("a user with a header: %d %v", status, got.Header)
	}
}
