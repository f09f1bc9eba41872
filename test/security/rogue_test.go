package security_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	cacheclient "github.com/atoll-dev/atoll/cacheserver/client"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// testRogueShard publishes, with the certificate of a shard named gamma, any object of use to an attacker. Objects that
// are in root, have its path, or are on another shard must stay unchanged. That gamma can publish for logical clusters
// of other shards to third ones is a gap of the threat model, and not tested here.
func testRogueShard(t *testing.T, s *env) {
	gamma := s.newCertificateUser(t, shardGroup+":gamma", shardGroup)
	admins := map[string]*testUser{s.a: s.adminA, s.b: s.adminB} // gamma grants them everything in every logical cluster
	s.createWorkspace(t, s.a, "far")
	s.waitReady(t, s.a, "far")
	far := s.workspaceCluster(t, s.a, "far")
	owner, _ := json.Marshal(s.do(t, s.masters, s.b, request{path: ownClusterPath}).object(t)["spec"].(map[string]any)["owner"])
	ownerOfFar, _ := json.Marshal(s.do(t, s.masters, far, request{path: ownClusterPath}).object(t)["spec"].(map[string]any)["owner"])
	publish := func(cluster, group, resource, kind, name, metadata, rest string) {
		t.Helper()
		version := "v1alpha1"
		switch {
		case strings.HasPrefix(group, "rbac"):
			version = "v1"
		case resource == "apiexports":
			version = "v1alpha2"
		}
		path := fmt.Sprintf("%s/shards/gamma/clusters/%s/apis/%s/%s/%s", cacheclient.Prefix, cluster, group, version, resource)
		body := fmt.Sprintf(`{"apiVersion":"%s/%s","kind":%q,"metadata":{"name":%q%s}%s}`, group, version, kind, name, metadata, rest)
		if got := s.send(t, gamma, s.cacheURL, request{method: http.MethodPost, path: path, body: body}); got.status != http.StatusCreated {
			t.Fatalf("%s: %d %s", path, got.status, got.body)
		}
	}
	const rbac, core, tenancy, apis, sharding = "rbac.authorization.k8s.io", "core.kcp.io", "tenancy.kcp.io", "apis.kcp.io", "sharding.kcp.io"
	ofRoot := `,"annotations":{"kcp.io/path":"root"}`
	all := `,"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"alice"},{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"bob"}]`
	for _, cluster := range []string{"root", s.b, "gammacluster"} {
		publish(cluster, apis, "apiexports", "APIExport", "stolen", ofRoot, `,"spec":{},"status":{"identityHash":"x"}`)
		publish(cluster, tenancy, "workspacetypes", "WorkspaceType", "stolen", ofRoot, `,"spec":{}`)
		publish(cluster, core, "logicalclusters", "LogicalCluster", "cluster", `,"annotations":{"kcp.io/path":"root","core.kcp.io/shard":"gamma"}`, `,"spec":{}`)
		publish(cluster, core, "shards", "Shard", "evil", `,"labels":{"name":"evil"}`, `,"spec":{"baseURL":"https://evil.example"}`)
		publish(cluster, core, "shards", "Shard", s.placement.b, `,"labels":{"name":"evil"}`, `,"spec":{"baseURL":"https://evil.example"}`)
		publish(cluster, rbac, "clusterrolebindings", "ClusterRoleBinding", "evil", `,"annotations":{"internal.kcp.io/replicate":"x"}`, all)
	}
	for _, name := range []string{"evil", "root", s.placement.b} {
		publish("system:shard", core, "shards", "Shard", name, `,"labels":{"name":"`+name+`","evil":"yes"}`, `,"spec":{"baseURL":"https://evil.example"}`)
	}
	publish("root", sharding, "shardreports", "ShardReport", s.placement.b, "", `,"spec":{"beat":99999999,"complete":false,"conditions":[{"type":"Ready","status":"False"}]}`)
	publish(s.a, sharding, "logicalclusterrequests", "LogicalClusterRequest", "far."+far, "", `,"spec":{"shard":"`+s.placement.b+`","cluster":"`+far+`","owner":`+string(ownerOfFar)+`,"delete":true}`)
	publish("root", sharding, "logicalclusterrequests", "LogicalClusterRequest", "b."+s.b, "", `,"spec":{"shard":"`+s.placement.b+`","cluster":"`+s.b+`","owner":`+string(owner)+`,"delete":true}`)
	publish(s.b, sharding, "logicalclusterreports", "LogicalClusterReport", "root.b", "", `,"spec":{"owner":`+string(owner)+`,"shard":"root","state":"Gone"}`)
	publish(far, sharding, "logicalclusterreports", "LogicalClusterReport", s.a+".far", "", `,"spec":{"owner":`+string(ownerOfFar)+`,"shard":"`+s.placement.a+`","state":"Gone"}`)
	// A valid object, of a logical cluster that no other shard has: once the shards show it, they have read the objects
	// published before it as well.
	publish("gammaspace", apis, "apiexports", "APIExport", "valid", "", `,"spec":{},"status":{"identityHash":"x"}`)
	publish("gammaspace", core, "logicalclusters", "LogicalCluster", "cluster", `,"annotations":{"kcp.io/path":"root:gamma"}`, `,"spec":{},"status":{"phase":"Ready"}`)
	publish("gammaspace", rbac, "clusterrolebindings", "ClusterRoleBinding", "evil", "", all)
	for cluster, caller := range admins {
		shardtesting.Eventually(t, "objects of gamma are replicated to the shard of "+cluster, func(context.Context) error {
			if got := s.do(t, caller, cluster, request{method: http.MethodPost, path: bindingsPath + "?dryRun=All", body: bindingJSON("x", "gammaspace", "valid")}); got.status != http.StatusCreated {
				return fmt.Errorf("%d %s", got.status, got.body)
			}
			return nil
		})
	}
	for range 10 { // lets the controllers reconcile
		time.Sleep(100 * time.Millisecond)
		for cluster, caller := range admins {
			for _, r := range []request{
				{method: http.MethodPost, path: bindingsPath + "?dryRun=All", body: bindingJSON("x", "root", "stolen")},
				{method: http.MethodPost, path: workspacesPath + "?dryRun=All", body: `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"x"},"spec":{"type":{"name":"stolen","path":"root"}}}`},
			} {
				if got := s.do(t, caller, cluster, r); got.status < 400 {
					t.Fatalf("in %s an object of gamma is resolved as an object of root: %s %s", cluster, r.body, got.body)
				}
			}
		}
		for _, base := range s.serverURLs() {
			if got := s.send(t, s.adminA, base, request{path: "/clusters/" + s.b + confidentialPath}); got.status != http.StatusForbidden {
				t.Fatalf("permitted by a role of gamma at the %s: %d %.300s", s.serverName(base), got.status, got.body)
			}
		}
		for cluster, name := range map[string]string{"root": "b", s.a: "far"} {
			got := s.do(t, s.masters, cluster, request{path: workspacesPath + "/" + name})
			if !strings.Contains(got.body, `"phase":"Ready"`) || strings.Contains(got.body, "deletionTimestamp") || strings.Contains(got.body, "evil") {
				t.Fatalf("the workspace %s: %s", name, got.body)
			}
		}
		for _, cluster := range []string{s.b, far} {
			if got := s.send(t, s.masters, s.layout.URL(s.placement.b), request{path: "/clusters/" + cluster + ownClusterPath}); got.status != http.StatusOK || strings.Contains(got.body, "deletionTimestamp") || strings.Contains(got.body, "evil") || strings.Contains(got.body, "gamma") {
				t.Fatalf("%s: %d %s", cluster, got.status, got.body)
			}
		}
		got := s.do(t, s.masters, "root", request{path: shardsPath})
		if got.status != http.StatusOK || strings.Contains(got.body, "evil") || strings.Contains(got.body, "gamma") {
			t.Fatalf("the list of shards: %d %s", got.status, got.body)
		}
		if got := s.send(t, s.adminB, s.proxyURL, request{path: "/clusters/root:b" + confidentialPath}); got.status != http.StatusOK {
			t.Fatalf("bob, through the proxy: %d %s", got.status, got.body)
		}
	}
}

// testCacheFromOutside requests the cache server embedded in the root shard through the front proxy, and by other paths
// of the same server: the shard serves it to no user there.
func (e *env) testCacheFromOutside(t *testing.T) {
	const exports = "/shards/*/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports"
	for _, caller := range e.cacheUsers(t) {
		for _, path := range []string{cacheclient.Prefix + exports, "/services//cache" + exports, "/clusters/root/services/cache" + exports, "/clusters/root/../../services/cache" + exports, "/clusters/*/services/cache" + exports, "/services/apiexport/root/tenancy.kcp.io/clusters/*/services/cache" + exports} {
			for _, method := range []string{http.MethodGet, http.MethodDelete} {
				if got := e.send(t, caller.testUser, e.proxyURL, request{method: method, path: path, header: caller.header}); got.status < 300 || got.status >= 500 {
					t.Errorf("%s with %v: %s %s through the proxy: %d %.300s", caller.name, caller.header, method, path, got.status, got.body)
				}
			}
			if path == cacheclient.Prefix+exports || caller.testUser == e.masters {
				continue
			}
			if got := e.send(t, caller.testUser, e.layout.URL(installation.Root), request{path: path, header: caller.header}); got.status < 300 && strings.Contains(got.body, "items") {
				t.Errorf("%s with %v: %s: %d %.300s", caller.name, caller.header, path, got.status, got.body)
			}
		}
	}
}
