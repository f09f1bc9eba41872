package security_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/atoll-dev/atoll/proxy/virtualworkspaces"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// startVirtualWorkspaces starts a virtual workspace server in front of the shard of b, and returns its URL.
func (e *env) startVirtualWorkspaces(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	views, err := e.layout.Client(e.layout.URL(e.placement.b), "virtual-workspaces", "system:masters")
	must(t, err)
	_, clients, proxies := e.layout.CAFiles()
	kubeconfig := filepath.Join(directory, "kubeconfig")
	must(t, clientcmd.WriteToFile(clientcmdapi.Config{
		CurrentContext: "c",
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: views.Host, CertificateAuthority: views.CAFile}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificate: views.CertFile, ClientKey: views.KeyFile}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "u"}},
	}, kubeconfig))
	servers := shardtesting.NewCA(t, "views")
	trusted, err := os.ReadFile(servers.CertFile)
	must(t, err)
	e.roots.AppendCertsFromPEM(trusted)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	o := virtualworkspaces.NewOptions()
	o.Kubeconfig = kubeconfig
	o.SecureServing.ServerCert.CertKey.CertFile, o.SecureServing.ServerCert.CertKey.KeyFile = servers.Issue(t, "views")
	o.SecureServing.Listener, o.SecureServing.BindPort = listener, listener.Addr().(*net.TCPAddr).Port
	o.ClientCert.ClientCA = clients
	o.RequestHeader.ClientCAFile, o.RequestHeader.AllowedNames = proxies, []string{proxyName}
	o.ShutdownTimeout = time.Second
	server, err := virtualworkspaces.New(o)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	run(t, ctx, cancel, server.Run)
	return "https://" + listener.Addr().String()
}

// testConcurrentUsers has many users send requests concurrently over backend connections that the servers share: each
// response belongs to the user who sent the request, while watches of others are open.
func (s *sharingEnv) testConcurrentUsers(t *testing.T) {
	const rounds = 25
	views := s.startVirtualWorkspaces(t)
	review := request{method: http.MethodPost, path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", body: `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`}
	type member struct {
		*testUser
		username, home, foreign string
		view                    int // response status in the virtual workspace of p
	}
	members := []member{
		{s.adminA, "alice", s.a, s.b, http.StatusForbidden},
		{s.adminB, "bob", s.b, s.a, http.StatusForbidden},
		{s.paula, "paula", s.p, s.b, http.StatusOK},
		{s.carol, "carol", s.c, s.p, http.StatusForbidden},
		{s.serviceAccount, "system:serviceaccount:default:builder", s.a, s.b, http.StatusForbidden},
		{s.unrelatedUser, "mallory", "", s.b, http.StatusForbidden},
	}
	var all sync.WaitGroup
	for _, one := range members {
		for _, caller := range []*testUser{one.testUser, one.testUser.withHTTP1(t)} {
			all.Go(func() {
				for range rounds {
					if one.home != "" {
						r := review
						r.path = "/clusters/" + one.home + review.path
						for _, base := range []string{s.resolveShardURL(t, one.home), s.proxyURL} {
							if got := s.send(t, caller, base, r); got.status != http.StatusCreated || !strings.Contains(got.body, `"username":"`+one.username+`"`) {
								t.Errorf("%s at %s: %d %.300s", one.name, base, got.status, got.body)
							}
						}
					}
					for _, base := range s.workspaceServerURLs() {
						for _, path := range []string{confidentialPath, secrets} {
							if got := s.send(t, caller, base, request{path: "/clusters/" + one.foreign + path}); got.status != http.StatusForbidden {
								t.Errorf("%s gets %s of %s at the %s: %d %.300s", one.name, path, one.foreign, s.serverName(base), got.status, got.body)
							}
						}
					}
					for _, base := range []string{s.resolveShardURL(t, s.b), views} {
						if got := s.send(t, caller, base, request{path: s.virtualWorkspace("widgets", s.b) + widgets + "/confidential"}); got.status != one.view {
							t.Errorf("%s in the virtual workspace at %s: %d %.300s", one.name, base, got.status, got.body)
						}
					}
				}
			})
		}
	}
	for _, watch := range []struct {
		caller *testUser
		url    string
		none   string
	}{{s.adminB, s.proxyURL + "/clusters/" + s.b + "/api/v1/configmaps", `"kcp.io/cluster":"` + s.a}, {s.adminA, s.proxyURL + "/clusters/" + s.a + "/api/v1/configmaps", confidentialData}, {s.paula, views + s.virtualWorkspace("widgets", s.b) + allWidgets, `"kcp.io/cluster":"` + s.a}} {
		all.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, watch.url+"?watch=1&timeoutSeconds=3", nil)
			if err != nil {
				t.Error(err)
				return
			}
			res, err := watch.caller.client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Errorf("%s watches: %s", watch.caller.name, res.Status)
			}
			lines := bufio.NewScanner(res.Body)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				if strings.Contains(lines.Text(), watch.none) {
					t.Errorf("%s receives %.300s", watch.caller.name, lines.Text())
				}
			}
			if err := lines.Err(); err != nil {
				t.Errorf("the watch of %s was not read to its end: %v", watch.caller.name, err)
			}
		})
	}
	all.Wait()
}

// testRoutes requests, anonymously and as an unauthorized user, all paths that servers mount beside logical clusters,
// in variant spellings too. They may return nothing but the health of the process.
func (s *sharingEnv) testRoutes(t *testing.T) {
	views := s.startVirtualWorkspaces(t)
	paths := []string{
		"/services", "/services/", "/services/cache", "/services/cache/", "/services/cache/shards/*/clusters/*/api/v1/secrets", "/services/cache/shards/root/clusters/" + s.b + secrets, "/services/cache/api/v1/secrets",
		"/services//cache/shards/*/clusters/*/api/v1/secrets", "/services/./cache/api", "/services/%63ache/api", "/Services/cache/api", "/cache/api/v1/secrets", "/shards/*/clusters/*/api/v1/secrets", "/shards/root/clusters/" + s.b + secrets,
		"/metrics", "/metrics/slis", "/debug/pprof/", "/debug/flags/v", "/debug/api_priority_and_fairness/dump_requests", "/debug/logicalclusters/outdated", "/debug/logicalclusters/outdated/" + s.b, "/debug/logicalclusters/outdated/" + s.b + "?withoutHolder=true", "/logs", "/logs/", "/configz", "/statusz", "/flagz", "/apis", "/api", "/api/v1/secrets", "/openapi/v2", "/openapi/v3", "/", "/index.html", "/.well-known/openid-configuration", "/openid/v1/jwks", "/swagger.json",
		"/services/admin", "/services/admin/", "/services/admin/apis", "/services/admin/apis/core.kcp.io/v1alpha1/shards", "/services/admin/apis/core.kcp.io/v1alpha1/shards/root", "/services/admin/clusters/*/apis/core.kcp.io/v1alpha1/shards",
		"/services/admin/clusters/" + s.b + secrets, "/services/admin/api/v1/secrets", "/services/admin/metrics", "/services//admin/apis/core.kcp.io/v1alpha1/shards",
	}
	for _, kind := range []string{"apiexport", "syncer", "apiresourceschema", "replication", "initializingworkspaces", "terminatingworkspaces", "nothing"} {
		for _, owner := range []string{"", s.p + "/widgets", s.p, "root:universal", s.b + ":private", s.b, "*", "*/*"} {
			for _, rest := range []string{"", "/", "/clusters", "/clusters/", "/clusters/*", "/clusters/*/api", "/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters", "/clusters/" + s.b + secrets, "/clusters/*" + allWidgets, "/clusters/" + s.b + "/metrics", "/metrics", "/apis/apis.kcp.io/v1alpha1/apiresourceschemas", "/clusters/system:admin/api/v1/secrets"} {
				paths = append(paths, "/services/"+kind+"/"+owner+rest)
			}
		}
	}
	headers := []http.Header{nil, {"X-Remote-User": {"bob"}, "X-Remote-Group": {"system:masters"}}, {"Impersonate-User": {"bob"}, "Impersonate-Group": {"system:masters"}}}
	var all sync.WaitGroup
	for _, base := range append(s.workspaceServerURLs(), s.cacheURL, views) {
		all.Go(func() {
			for i, path := range paths {
				if base == s.cacheURL && strings.HasPrefix(path, "/services/") && !strings.Contains(path, "cache") {
					continue // the cache server has none of these, and closes anonymous connections
				}
				for _, caller := range []*testUser{s.anonymous, s.unrelatedUser} {
					for _, method := range []string{http.MethodGet, []string{http.MethodPost, http.MethodDelete, http.MethodPut, http.MethodOptions}[i%4]} {
						got := s.send(t, caller, base, request{method: method, path: path, header: headers[i%3]})
						if got.status < 300 || got.status >= 500 || strings.Contains(got.body, confidentialData) || strings.Contains(got.body, `"items"`) {
							t.Errorf("%s: %s %s at the %s: %d %.200s", caller.name, method, path, s.serverName(base), got.status, got.body)
						}
					}
				}
			}
		})
	}
	all.Wait()
}
