package security_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

const (
	exportsPath  = "/apis/apis.kcp.io/v1alpha2/apiexports"
	bindingsPath = "/apis/apis.kcp.io/v1alpha2/apibindings"
)

// testIdentitySuffixes names resources of workspace a with the suffix that their storage keys have,
// "<resource>:<identity>". Requests that are forbidden for a resource must be forbidden by that name, too.
func testIdentitySuffixes(t *testing.T, s *env) {
	s.createObject(t, exportsPath, `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{"name":"stolen"},"spec":{}}`)
	const forged = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	tenancy := s.exportIdentity(t, "tenancy.kcp.io")
	for name, r := range map[string]struct{ path, with, status string }{
		"identityHash of an APIExport":         {exportsPath + "/stolen", "customresources", `{"identityHash":"` + forged + `"}`},
		"boundResources of an APIBinding":      {bindingsPath + "/tenancy.kcp.io", "customresources", `{"boundResources":[{"group":"tenancy.kcp.io","resource":"workspaces","schema":{"name":"x","UID":"x","identityHash":"` + forged + `"}}]}`},
		"virtualWorkspaces of a WorkspaceType": {typesPath + "/forged", tenancy, `{"virtualWorkspaces":[{"url":"https://evil.example/` + forged + `","type":"initializing"}]}`},
		"phase of a Workspace":                 {workspacesPath + "/forged", tenancy, `{"phase":"` + forged + `"}`},
	} {
		if strings.HasPrefix(r.path, typesPath) {
			s.createObject(t, typesPath, `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"WorkspaceType","metadata":{"name":"forged"},"spec":{}}`)
		}
		if strings.HasPrefix(r.path, workspacesPath) {
			s.createObject(t, workspacesPath, `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"forged"},"spec":{}}`)
		}
		at := strings.LastIndex(r.path, "/")
		for _, path := range []string{r.path + "/status", r.path[:at] + ":" + r.with + r.path[at:] + "/status", r.path[:at] + "%3a" + r.with + r.path[at:] + "/status", r.path[:at] + ":" + r.with + r.path[at:] + "/status/"} {
			for _, caller := range []*testUser{s.adminA, s.serviceAccount} {
				got := s.do(t, caller, s.a, request{method: http.MethodPatch, path: path, contentType: mergePatchType, body: `{"status":` + r.status + `}`})
				if got.status < 400 || got.status >= 500 {
					t.Errorf("%s: %s of %s: %d %.300s", name, path, caller.name, got.status, got.body)
				}
			}
		}
		if got := s.do(t, s.adminA, s.a, request{path: r.path}); strings.Contains(got.body, forged) {
			t.Errorf("%s: %.600s", name, got.body)
		}
	}
}

// testTenantInitializers writes, through the virtual workspace of a workspace type whose initializer has all
// permissions, fields that only the server may set.
func testTenantInitializers(t *testing.T, s *env) {
	const forged = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	cluster := s.createInitializingWorkspace(t, "permissive", `,"initializerPermissions":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]`)
	in := s.lifecycleVirtualWorkspacePath("initializingworkspaces", "permissive", cluster)
	export := `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{"name":"stolen"},"spec":{}}`
	if got := s.sendToShard(t, s.adminA, request{method: http.MethodPost, path: in + exportsPath, body: export}); got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.body)
	}
	const clusters = "/apis/core.kcp.io/v1alpha1/logicalclusters"
	before := s.do(t, s.masters, cluster, request{path: ownClusterPath}).object(t)["status"]
	for path, status := range map[string]string{
		exportsPath + "/stolen/status":                        `{"identityHash":"` + forged + `"}`,
		exportsPath + ":customresources/stolen/status":        `{"identityHash":"` + forged + `"}`,
		"/apis/apis.kcp.io/v1alpha1/apiexports/stolen/status": `{"identityHash":"` + forged + `"}`,
		clusters + ":customresources/cluster/status":          `{"phase":"Ready","initializers":[]}`,
		clusters + "%3acustomresources/cluster/status":        `{"phase":"Ready","initializers":[]}`,
	} {
		if got := s.sendToShard(t, s.adminA, request{method: http.MethodPatch, path: in + path, contentType: mergePatchType, body: `{"status":` + status + `}`}); got.status < 400 || got.status >= 500 {
			t.Errorf("%s: %d %.300s", path, got.status, got.body)
		}
	}
	if got := s.do(t, s.masters, cluster, request{path: exportsPath + "/stolen"}); strings.Contains(got.body, forged) {
		t.Errorf("%.600s", got.body)
	}
	if after := s.do(t, s.masters, cluster, request{path: ownClusterPath}).object(t)["status"]; fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the status of the logical cluster was %v and is %v", before, after)
	}
}

// exportIdentity returns the identity hash of an export of root.
func (e *env) exportIdentity(t *testing.T, export string) string {
	t.Helper()
	status, _ := e.do(t, e.masters, "root", request{path: exportsPath + "/" + export}).object(t)["status"].(map[string]any)
	identity, _ := status["identityHash"].(string)
	if identity == "" {
		t.Fatalf("export %s of root has no identity", export)
	}
	return identity
}
