package security_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testMounts mounts in workspace a whatever the shard itself can reach: the shard, the proxy, and a server that records
// its requests.
func testMounts(t *testing.T, s *env) {
	var mu sync.Mutex
	var received strings.Builder
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		dump, _ := httputil.DumpRequest(req, true)
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&received, "%s\ncertificates: %d\n", dump, len(req.TLS.PeerCertificates))
		w.Header().Set("Set-Cookie", "session=stolen")
		http.Redirect(w, req, s.resolveShardURL(t, s.b)+"/clusters/"+s.b+confidentialPath, http.StatusTemporaryRedirect)
	}))
	backend.Config.ErrorLog = log.New(io.Discard, "", 0) // the proxy does not trust this server
	backend.StartTLS()
	defer backend.Close()
	s.createDefinition(t, definitionJSON("mounts.example.com", "mounts", "Mount", "Namespaced", "v1", ""), "mounts.mounts.example.com")
	defer func() {
		s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: definitionsPath + "/mounts.mounts.example.com"})
		s.waitForStatus(t, s.adminA, s.a, definitionsPath+"/mounts.mounts.example.com", http.StatusNotFound)
	}()
	const mounts = "/apis/mounts.example.com/v1/namespaces/default/mounts"
	for name, url := range map[string]string{
		"the shard": s.shardURL, "b": s.resolveShardURL(t, s.b) + "/clusters/" + s.b, "objects of b": s.resolveShardURL(t, s.b) + "/clusters/" + s.b + configMapsPath, "all": s.shardURL + "/clusters/*", "profiles": s.shardURL + "/debug/pprof", "metrics": s.shardURL + "/metrics",
		"system clusters": s.shardURL + "/clusters/system:admin", "a virtual workspace": s.shardURL + "/services/initializingworkspaces/" + s.b + ":private/clusters/*", "the proxy": s.proxyURL + "/clusters/root:b", "external": backend.URL, "etcd": "https://127.0.0.1:2379", "the cache": s.cacheURL, "objects of the cache": s.cacheURL + "/services/cache/shards/*/clusters/*",
	} {
		t.Run(name, func(t *testing.T) {
			object := strings.NewReplacer(" ", "-", "'", "").Replace(name)
			s.createObject(t, mounts, `{"apiVersion":"mounts.example.com/v1","kind":"Mount","metadata":{"name":"`+object+`"}}`)
			if got := s.do(t, s.adminA, s.a, request{method: http.MethodPatch, path: mounts + "/" + object + "/status", contentType: mergePatchType, body: `{"status":{"phase":"Ready","URL":"` + url + `"}}`}); got.status != http.StatusOK {
				t.Fatalf("%d %s", got.status, got.body)
			}
			workspace := "m-" + object
			s.createObject(t, workspacesPath, `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"`+workspace+`"},"spec":{"mount":{"ref":{"apiVersion":"mounts.example.com/v1","kind":"Mount","namespace":"default","name":"`+object+`"}}}}`)
			shardtesting.Eventually(t, "the mount is Ready", func(context.Context) error {
				got := s.do(t, s.adminA, s.a, request{path: workspacesPath + "/" + workspace})
				if !strings.Contains(got.body, `"phase":"Ready"`) {
					return fmt.Errorf("%s", got.body)
				}
				return nil
			})
			secrets := http.Header{"Cookie": {"c=secret-of-caller"}, "Proxy-Authorization": {"secret-of-caller"}, "Impersonate-User": {"bob"}, "X-Remote-User": {"bob"}, "X-Forwarded-User": {"secret-of-caller"}}
			for _, caller := range []*testUser{s.adminA, s.serviceAccount, s.unrelatedUser, s.anonymous} {
				for _, base := range s.workspaceServerURLs() {
					for _, path := range []string{"", "/", confidentialPath, "/confidential", "/heap", "/api/v1/configmaps", "/apis/core.kcp.io/v1alpha1/logicalclusters", "/clusters/" + s.b + confidentialPath, "/../" + s.b + confidentialPath, "/%2e%2e/" + s.b + confidentialPath, "/..%2f" + s.b + confidentialPath, "/metrics", "/debug/pprof/heap", "/goroutine?debug=1"} {
						for _, header := range []http.Header{nil, secrets} {
							got := s.send(t, caller, base, request{path: "/clusters/" + s.a + ":" + workspace + path, header: header})
							if strings.Contains(got.body, confidentialData) || strings.Contains(got.body, "go_goroutines") || strings.Contains(got.body, "goroutine profile") || got.header.Get("Set-Cookie") != "" {
								t.Errorf("%s, %s of %s: %d %.300s", caller.name, path, url, got.status, got.body)
							}
							if got.status == http.StatusOK && !strings.Contains(got.body, `"/api`) && !strings.HasSuffix(path, "/api") && path != "/" && path != "" {
								t.Errorf("%s, %s of %s: %d %.300s", caller.name, path, url, got.status, got.body)
							}
						}
					}
				}
			}
			s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: workspacesPath + "/" + workspace})
		})
	}
	mu.Lock()
	defer mu.Unlock()
	for _, secret := range []string{s.serviceAccount.token, "secret-of-caller", "X-Remote-", "Impersonate-", "Authorization", "alice", "mallory", "certificates: 1"} {
		if strings.Contains(received.String(), secret) {
			t.Errorf("the mounted server received %q", secret)
		}
	}
	if received.Len() == 0 {
		t.Error("the mounted server received no requests")
	}
}
