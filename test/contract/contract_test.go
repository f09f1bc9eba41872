package contract

import (
	"net/http"
	"strings"
	"testing"
)

// row is one line of the contract.
type row struct {
	// section is the number of its section in the contract.
	section, description string
	user                 string
	// request is "METHOD path", or a path to get.
	request string
	body    string
	// shard and proxy are the expected status codes; 0 sends no request.
	shard, proxy int
	// contains is a part of the shard's response body.
	contains string
}

func TestContract(t *testing.T) {
	s := newEnv(t)
	s.exportAPI(t)
	for _, part := range [][]row{urlRows(), logicalClusterRows(), workspaceRows(), typeRows(), admissionRows(), apiRows(), schemaVariantRows(), claimRows(), virtualWorkspaceRows(), identityRows(), rootRows(), discoveryRows()} {
		for _, row := range part {
			t.Run(row.section+" "+row.description+", user "+row.user, func(t *testing.T) {
				t.Parallel()
				s.checkRow(t, row)
			})
		}
	}
}

// checkRow sends the request of a row to the shard and through the proxy, where the row defines a status code.
func (e *env) checkRow(t *testing.T, row row) {
	t.Helper()
	method, path, found := strings.Cut(row.request, " ")
	if !found {
		method, path = http.MethodGet, row.request
	}
	req := request{user: row.user, method: method, path: path, body: row.body}
	if row.shard != 0 {
		if got := e.do(t, req); got.status != row.shard || !strings.Contains(got.body, e.names.Replace(row.contains)) {
			t.Errorf("%s %s: the shard returns %d, want %d and %q: %.500s", row.section, row.description, got.status, row.shard, row.contains, got.body)
		}
	}
	if req.proxy = true; row.proxy != 0 {
		if got := e.do(t, req); got.status != row.proxy {
			t.Errorf("%s %s: the proxy returns %d, want %d: %.500s", row.section, row.description, got.status, row.proxy, got.body)
		}
	}
}

// urlRows covers the URL space (1), access (6), and the summary of status codes (11).
func urlRows() []row {
	const initializing = "/services/initializingworkspaces/root:universal/clusters/"
	return []row{
		{"1.1", "cluster by name", "alice", "/clusters/{a}" + namespaces, "", 200, 200, ""},
		{"1.1", "cluster by path", "alice", "/clusters/root:a" + namespaces, "", 200, 200, ""},
		{"1.1", "malformed cluster", "masters", "/clusters/No_t" + namespaces, "", 400, 403, "does not match the regex"},
		{"1.1", "cluster without a request path", "masters", "/clusters/root", "", 400, 403, ""},
		{"1.1", "prefix without a cluster", "masters", "/clusters/", "", 400, 403, ""},
		{"1.1", "empty identity", "masters", "/clusters/{a}" + workspaces + ":", "", 500, 0, "identity"},
		{"1.1", "unknown identity", "masters", "/clusters/{a}" + workspaces + ":abc", "", 404, 0, ""},
		{"1.1", "request without a cluster", "admin", namespaces, "", 403, 404, ""},
		{"1.3", "unknown path", "mallory", "/clusters/root:nope" + namespaces, "", 404, 403, `workspaces.tenancy.kcp.io \"root:nope\" not found`},
		{"1.3", "unknown name is Forbidden", "admin", "/clusters/nope" + namespaces, "", 403, 403, ""},
		{"1.3", "unknown name, system:masters", "masters", "/clusters/nope" + namespaces, "", 200, 403, `"items":[]`},
		{"1.3", "home of a user without a home workspace", "admin", "/clusters/user:carol" + namespaces, "", 404, 403, ""},
		{"1.3", "home without a user name", "admin", "/clusters/user" + namespaces, "", 403, 403, ""},
		{"1.5", "list of all clusters", "masters", "/clusters/*" + namespaces, "", 200, 403, ""},
		{"1.5", "list of all clusters is Forbidden except for system:masters", "admin", "/clusters/*" + namespaces, "", 403, 403, ""},
		{"1.5", "get in all clusters", "masters", "/clusters/*" + namespaces + "/default", "", 405, 403, "logical cluster"},
		{"1.5", "create in all clusters", "masters", "POST /clusters/*" + namespaces, `{"metadata":{"name":"x"}}`, 405, 403, ""},
		{"1.5", "list of a custom resource of all clusters without identity", "masters", "/clusters/*/apis/example.com/v1/things", "", 404, 403, ""},
		{"1.7", "health checks", "unauthenticated", "/readyz", "", 200, 200, ""},
		{"1.7", "health checks below a cluster", "unauthenticated", "/clusters/root/livez", "", 200, 0, ""},
		{"1.7", "usage instead of metrics below a cluster, a deviation", "masters", "/clusters/root/metrics", "", 200, 403, "atoll_usage_"},
		{"1.7", "audit events of a cluster, an addition", "alice", "/clusters/{a}/audit", "", 200, 200, `"kind":"EventList"`},
		{"1.7", "audit events of another tenant's cluster are Forbidden", "mallory", "/clusters/{a}/audit", "", 403, 403, ""},
		{"1.7", "audit events of all clusters", "masters", "/clusters/*/audit", "", 404, 403, ""},
		{"1.7", "audit events without a cluster", "masters", "/audit", "", 404, 404, ""},
		{"1.7", "shard-level endpoints below a cluster", "masters", "/clusters/root/configz", "", 501, 501, "shard-level endpoint not available at workspace scope"},
		{"1.7", "metrics", "admin", "/metrics", "", 200, 200, ""},
		{"1.7", "metrics are Forbidden for tenants", "alice", "/metrics", "", 403, 403, ""},
		{"1.7", "version of a cluster", "alice", "/clusters/{a}/version", "", 200, 200, "gitVersion"},
		{"1.7", "version of another tenant's cluster is Forbidden", "mallory", "/clusters/{a}/version", "", 403, 403, ""},
		{"1.7", "OpenAPI of a cluster", "alice", "/clusters/{a}/openapi/v3", "", 200, 200, "apis/core.kcp.io/v1alpha1"},
		{"1.7", "OpenAPI without a cluster", "masters", "/openapi/v3", "", 404, 404, ""},
		{"2.3", "system cluster", "masters", "/clusters/system:admin" + namespaces, "", 200, 403, ""},
		{"2.3", "system cluster is Forbidden except for system:masters", "admin", "/clusters/system:admin" + namespaces, "", 403, 403, ""},
		{"6.3", "another tenant's workspace is Forbidden", "mallory", "/clusters/{a}" + namespaces, "", 403, 403, "access denied"},
		{"6.3", "workspace without credentials", "unauthenticated", "/clusters/{a}" + namespaces, "", 403, 401, ""},
		{"6.3", "workspace with invalid credentials", "invalid", "/clusters/{a}" + namespaces, "", 401, 401, ""},
		{"6.3", "any user has access to root", "mallory", "/clusters/root" + workspaces, "", 200, 200, ""},
		{"6.3", "secrets of root are Forbidden", "mallory", "/clusters/root" + secrets, "", 403, 403, ""},
		{"5.1", "unknown virtual workspace is Forbidden", "alice", "/services/nothing/x", "", 403, 403, "Path not resolved to a valid virtual workspace"},
		{"5.1", "unknown virtual workspace, system:masters", "masters", "/services/nothing/x", "", 404, 403, ""},
		{"5.4", "list of the initializing workspaces of a type", "admin", initializing + "*" + clusters, "", 200, 200, "LogicalClusterList"},
		{"5.4", "list without initialize permission is Forbidden", "alice", initializing + "*" + clusters, "", 403, 403, ""},
		{"5.4", "invalid initializer is Forbidden", "admin", strings.Replace(initializing, "root:", "", 1) + "*" + clusters, "", 403, 403, ""},
		{"5.4", "workspace that is not initializing", "admin", initializing + "{a}" + ownClusterPath, "", 404, 404, ""},
		{"5.4", "content of a workspace that is not initializing is Forbidden", "admin", initializing + "{b}" + namespaces, "", 403, 403, `initializer "root:universal" cannot access this workspace`},
		{"5.4", "content of an unknown cluster", "admin", initializing + "nope" + namespaces, "", 500, 403, ""},
		{"5.1", "workspace by path is Forbidden", "admin", initializing + "root:a" + ownClusterPath, "", 403, 403, ""},
		{"5.1", "unsupported verb", "admin", "DELETE " + initializing + "*" + clusters, "", 405, 405, ""},
		{"5.1", "API outside of the API set", "admin", initializing + "*/api/v1/configmaps", "", 404, 404, ""},
	}
}

// logicalClusterRows covers section 2: what tenants may do to the LogicalCluster object of their own cluster.
func logicalClusterRows() []row {
	const patchCluster, patchStatus = "PATCH /clusters/{b}" + ownClusterPath + dryRun, "PATCH /clusters/{b}" + ownClusterPath + "/status" + dryRun
	const idle = "/clusters/{idle}"
	return []row{
		{"2.4", "name other than cluster", "masters", "POST /clusters/{b}" + clusters, `{"metadata":{"name":"other"}}`, 422, 403, "supported values"},
		{"2.4", "invalid phase", "bob", patchStatus, `{"status":{"phase":"Bogus"}}`, 422, 422, ""},
		{"2.4", "invalid initializer name", "bob", patchStatus, `{"status":{"initializers":["UP"]}}`, 422, 422, ""},
		{"2.6", "create by a tenant is Forbidden", "bob", "POST /clusters/{b}" + clusters, `{"metadata":{"name":"cluster"}}`, 403, 403, "LogicalCluster cannot be created"},
		{"2.6", "delete by a tenant is Forbidden", "bob", "DELETE /clusters/{b}" + clusters + "/cluster", "", 403, 403, "LogicalCluster cannot be deleted"},
		{"2.6", "delete by the kcp administrator is Forbidden", "admin", "DELETE /clusters/{b}" + clusters + "/cluster" + dryRun, "", 403, 403, "LogicalCluster cannot be deleted"},
		{"2.6", "delete by a logical cluster administrator", "manager", "DELETE /clusters/{b}" + clusters + "/cluster" + dryRun, "", 200, 403, ""},
		{"2.6", "createdBy is immutable", "bob", patchCluster, `{"spec":{"createdBy":{"username":"eve"}}}`, 403, 403, "spec.createdBy is immutable"},
		{"2.6", "spec.initializers is immutable", "bob", patchCluster, `{"spec":{"initializers":["root:xx"]}}`, 403, 403, "spec.initializers is immutable"},
		{"2.6", "completed initializers cannot be added", "bob", patchStatus, `{"status":{"initializers":["root:xx"]}}`, 403, 403, "status.initializers"},
		{"2.6", "earlier phase is Forbidden", "bob", patchStatus, `{"status":{"phase":"Initializing"}}`, 403, 403, "status.phase cannot go back"},
		{"2.6", "metadata can be changed", "bob", patchCluster, `{"metadata":{"labels":{"mine":"yes"}}}`, 200, 200, ""},
		{"7.4", "removed finalizer is restored", "bob", patchCluster, `{"metadata":{"finalizers":[]}}`, 200, 200, "core.kcp.io/logicalcluster-deletion"},
		{"2.7", "inactive cluster is Forbidden", "bob", idle + namespaces, "", 403, 403, `logicalclusters.core.kcp.io \"{idle}\" is forbidden: logical cluster is marked inactive`},
		{"2.7", "inactive cluster is Forbidden for system:masters", "masters", idle + namespaces, "", 403, 403, "marked inactive"},
		{"2.7", "LogicalCluster of an inactive cluster", "bob", idle + clusters + "/cluster", "", 200, 200, `"phase":"Inactive"`},
		{"2.7", "OpenAPI of an inactive cluster", "bob", idle + "/openapi/v3", "", 200, 200, ""},
	}
}

// workspaceRows covers the parts of section 3 that concern Workspace objects.
func workspaceRows() []row {
	create := "POST /clusters/root:a" + workspaces + dryRun
	update := "PATCH /clusters/root" + workspaces + "/a" + dryRun
	return []row{
		{"3.1", "invalid name", "alice", create, `{"metadata":{"name":"Bad_"},"spec":{}}`, 422, 422, "metadata.name"},
		{"3.1", "name longer than 63 characters", "alice", create, `{"metadata":{"name":"` + strings.Repeat("a", 64) + `"},"spec":{}}`, 422, 422, ""},
		{"3.1", "create with a URL is Forbidden", "alice", create, `{"metadata":{"name":"x"},"spec":{"URL":"https://x"}}`, 403, 403, "spec.URL"},
		{"3.1", "create with a cluster is Forbidden", "alice", create, `{"metadata":{"name":"x"},"spec":{"cluster":"x"}}`, 403, 403, "spec.cluster"},
		{"3.1", "owner annotation is that of the user", "alice", create, `{"metadata":{"name":"x","annotations":{"experimental.tenancy.kcp.io/owner":"{\"username\":\"eve\"}"}},"spec":{}}`, 201, 201, `{\"username\":\"alice\"`},
		{"3.1", "URL is immutable", "masters", update, `{"spec":{"URL":null}}`, 422, 403, "URL cannot be unset"},
		{"3.1", "cluster is immutable", "masters", update, `{"spec":{"cluster":"other"}}`, 422, 403, "immutable"},
		{"3.1", "type is immutable", "masters", update, `{"spec":{"type":{"name":"team"}}}`, 422, 403, "immutable"},
		{"3.1", "write of the status is Forbidden", "bob", "PATCH /clusters/{b}" + workspaces + "/x/status", `{"status":{}}`, 403, 403, "access denied"},
		{"3.3", "default type is the default child of the parent's type", "alice", create, `{"metadata":{"name":"x"},"spec":{}}`, 201, 201, `"type":{"name":"universal","path":"root"}`},
		{"3.3", "type without a path is resolved in ancestors", "alice", create, `{"metadata":{"name":"x"},"spec":{"type":{"name":"universal"}}}`, 201, 201, `"path":"root"`},
		{"3.3", "unknown type is Forbidden", "alice", create, `{"metadata":{"name":"x"},"spec":{"type":{"name":"nope"}}}`, 403, 403, ""},
		{"3.3", "type at a wrong path is Forbidden", "alice", create, `{"metadata":{"name":"x"},"spec":{"type":{"name":"universal","path":"root:a"}}}`, 403, 403, ""},
		{"3.3", "type without use permission is Forbidden", "alice", create, `{"metadata":{"name":"x"},"spec":{"type":{"name":"home","path":"root"}}}`, 403, 403, "missing verb=use permission on workspacetype"},
		{"3.3", "type that disallows the parent is Forbidden", "alice", create, `{"metadata":{"name":"x"},"spec":{"type":{"name":"team","path":"root"}}}`, 403, 403, "limitAllowedParents"},
		{"3.6", "mount without a name", "alice", create, `{"metadata":{"name":"x"},"spec":{"mount":{"ref":{"apiVersion":"v1","kind":"ConfigMap"}}}}`, 422, 422, ""},
	}
}

// typeRows covers the parts of section 3 that concern WorkspaceType objects.
func typeRows() []row {
	create := "POST /clusters/{a}" + types + dryRun
	spec := func(spec string) string { return `{"metadata":{"name":"tt"},"spec":` + spec + `}` }
	return []row{
		{"3.7", "defaults of a type", "alice", create, spec(`{}`), 201, 201, `"defaultChildWorkspaceType":{"name":"universal","path":"root"}`},
		{"7.3", "path annotation of a type", "alice", create, spec(`{}`), 201, 201, `"kcp.io/path":"root:a"`},
		{"3.7", "name system is reserved", "masters", create, `{"metadata":{"name":"system"},"spec":{}}`, 403, 403, "name is reserved"},
		{"3.7", "name any is reserved", "alice", create, `{"metadata":{"name":"any"},"spec":{}}`, 403, 403, "name is reserved"},
		{"3.7", "name root is reserved for root", "alice", create, `{"metadata":{"name":"root"},"spec":{}}`, 403, 403, ""},
		{"3.7", "invalid name", "alice", create, `{"metadata":{"name":"Bad"},"spec":{}}`, 422, 422, ""},
		{"3.7", "default child without a path is Forbidden", "alice", create, spec(`{"defaultChildWorkspaceType":{"name":"universal"}}`), 403, 403, "path must be set"},
		{"3.7", "allowed children without a path are Forbidden", "alice", create, spec(`{"limitAllowedChildren":{"types":[{"name":"universal"}]}}`), 403, 403, "path must be set"},
		{"3.7", "none and types exclude each other", "alice", create, spec(`{"limitAllowedParents":{"none":true,"types":[{"name":"universal","path":"root"}]}}`), 422, 422, ""},
		{"3.7", "limit without none and types", "alice", create, spec(`{"limitAllowedParents":{}}`), 422, 422, ""},
		{"3.7", "limit with empty types", "alice", create, spec(`{"limitAllowedParents":{"types":[]}}`), 422, 422, ""},
		{"3.7", "default bindings without bind permission are Forbidden", "alice", create, spec(`{"defaultAPIBindings":[{"path":"root","export":"nope"}]}`), 403, 403, "no permission to bind to export root:nope"},
		{"3.7", "default bindings with bind permission", "alice", create, spec(`{"defaultAPIBindings":[{"path":"root","export":"tenancy.kcp.io"}]}`), 201, 201, ""},
		{"3.7", "invalid default binding lifecycle", "alice", create, spec(`{"defaultAPIBindingLifecycle":"Bogus"}`), 422, 422, ""},
	}
}

// admissionRows covers the admission rules (7) for objects other than workspaces.
func admissionRows() []row {
	definition := func(group, annotations string) string {
		return `{"metadata":{"name":"things.` + group + `","annotations":{` + annotations + `}},"spec":{"group":"` + group + `","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`
	}
	define := "POST /clusters/{b}" + definitions + dryRun
	return []row{
		{"7.2", "delete of namespace default is Forbidden", "bob", "DELETE /clusters/{b}" + namespaces + "/default", "", 403, 403, ""},
		{"7.2", "delete of namespace kube-system is Forbidden", "masters", "DELETE /clusters/{b}" + namespaces + "/kube-system", "", 403, 403, ""},
		{"7.2", "create in a missing namespace", "bob", "POST /clusters/{b}" + namespaces + "/nope/configmaps", `{"metadata":{"name":"x"}}`, 404, 404, `namespaces \"nope\" not found`},
		{"7.2", "shard without a base URL", "masters", "POST /clusters/root" + shards + dryRun, `{"metadata":{"name":"x"},"spec":{}}`, 500, 403, "spec.baseURL is required"},
		{"7.2", "default URLs of a shard", "masters", "POST /clusters/root" + shards + dryRun, `{"metadata":{"name":"x"},"spec":{"baseURL":"https://x"}}`, 201, 403, `"externalURL":"https://x","virtualWorkspaceURL":"https://x"`},
		{"7.2", "definition in a tenant's group", "bob", define, definition("example.com", ""), 201, 201, ""},
		{"7.2", "definition in group apis.kcp.io is Forbidden", "masters", define, definition("apis.kcp.io", ""), 403, 403, ""},
		{"7.2", "definition in a group with the suffix apis.kcp.io is Forbidden", "bob", define, definition("xapis.kcp.io", ""), 403, 403, ""},
		{"7.2", "definition with a kcp annotation is Forbidden", "masters", define, definition("example.com", `"apis.kcp.io/bound-crd":""`), 403, 403, ""},
		{"7.2", "definition in another group of kcp.io", "bob", define, definition("xx.kcp.io", ""), 201, 201, ""},
		{"7.2", "definition with an annotation below apis.kcp.io is Forbidden", "bob", define, definition("example.com", `"x.apis.kcp.io/y":""`), 403, 403, "reserved"},
		{"7.2", "definition with an annotation with the suffix apis.kcp.io", "bob", define, definition("example.com", `"xapis.kcp.io/y":""`), 201, 201, ""},
		{"9.5", "definition in an unapproved Kubernetes group", "bob", define, definition("example.k8s.io", ""), 422, 422, "api-approved.kubernetes.io"},
		{"7.3", "path annotation is overwritten", "bob", "POST /clusters/{b}" + configMaps + dryRun, `{"metadata":{"name":"x","annotations":{"kcp.io/path":"root:a"}}}`, 201, 201, `"kcp.io/path":"root:b"`},
		{"7.2", "reserved metadata is Forbidden with ReservedMetadata", "bob", "POST /clusters/{b}" + configMaps + dryRun, `{"metadata":{"name":"x","labels":{"example.com/kcp.io":"y"}}}`, 403, 403, "reserved for the system"},
		{"7.2", "reserved metadata, system:masters", "masters", "POST /clusters/{b}" + configMaps + dryRun, `{"metadata":{"name":"x","labels":{"example.com/kcp.io":"y"}}}`, 201, 403, ""},
		{"7.1", "create without a required quota is Forbidden", "bob", "POST /clusters/{b}" + secrets + dryRun, `{"metadata":{"name":"x"}}`, 403, 403, "insufficient quota to consume: count/secrets"},
		{"7.1", "create without a quota requirement", "bob", "POST /clusters/{b}" + configMaps + dryRun, `{"metadata":{"name":"x"}}`, 201, 201, ""},
	}
}

// discoveryRows covers section 9.
func discoveryRows() []row {
	var rows []row
	for path, resources := range map[string]string{
		"/api/v1": "configmaps events namespaces namespaces/status namespaces/finalize resourcequotas resourcequotas/status secrets serviceaccounts serviceaccounts/token",
		"/apis/admissionregistration.k8s.io/v1": "mutatingwebhookconfigurations validatingwebhookconfigurations validatingadmissionpolicies validatingadmissionpolicies/status " +
			"validatingadmissionpolicybindings mutatingadmissionpolicies mutatingadmissionpolicybindings",
		"/apis/apiextensions.k8s.io/v1":      "customresourcedefinitions customresourcedefinitions/status",
		"/apis/authentication.k8s.io/v1":     "tokenreviews selfsubjectreviews",
		"/apis/authorization.k8s.io/v1":      "subjectaccessreviews selfsubjectaccessreviews localsubjectaccessreviews selfsubjectrulesreviews",
		"/apis/certificates.k8s.io/v1":       "certificatesigningrequests certificatesigningrequests/status certificatesigningrequests/approval",
		"/apis/coordination.k8s.io/v1":       "leases",
		"/apis/events.k8s.io/v1":             "events",
		"/apis/rbac.authorization.k8s.io/v1": "roles rolebindings clusterroles clusterrolebindings",
		"/apis/core.kcp.io/v1alpha1":         "logicalclusters logicalclusters/status",
		"/apis/tenancy.kcp.io/v1alpha1":      "workspaces workspaces/status workspacetypes workspacetypes/status workspaceauthenticationconfigurations",
	} {
		for _, resource := range strings.Fields(resources) {
			rows = append(rows, row{"9.1", resource + " in " + path, "bob", "/clusters/{b}" + path, "", 200, 200, `"name":"` + resource + `"`})
		}
	}
	for _, path := range []string{
		"/api/v1/pods", "/api/v1/nodes", "/api/v1/services", "/api/v1/limitranges", "/api/v1/componentstatuses", "/apis/apps/v1", "/apis/batch/v1", "/apis/autoscaling/v2",
		"/apis/policy/v1", "/apis/networking.k8s.io/v1", "/apis/discovery.k8s.io/v1", "/apis/storage.k8s.io/v1", "/apis/scheduling.k8s.io/v1", "/apis/resource.k8s.io/v1",
		"/apis/flowcontrol.apiserver.k8s.io/v1", "/apis/internal.apiserver.k8s.io/v1alpha1", "/apis/apiregistration.k8s.io/v1", "/apis/rbac.authorization.k8s.io/v1beta1", shards,
	} {
		rows = append(rows, row{"9.4", "no " + path, "bob", "/clusters/{b}" + path, "", 404, 404, ""})
	}
	return rows
}
