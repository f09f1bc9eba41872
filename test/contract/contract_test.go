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
			t.Run(row.section+" "+row.description+", asked by "+row.user, func(t *testing.T) {
				t.Parallel()
				s.checkRow(t, row)
			})
		}
	}
}

// checkRow sends the request of a row to the shard and through the proxy, where the row defines a status code.
func (s *env) checkRow(t *testing.T, row row) {
	t.Helper()
	method, path, found := strings.Cut(row.request, " ")
	if !found {
		method, path = http.MethodGet, row.request
	}
	req := request{user: row.user, method: method, path: path, body: row.body}
	if row.shard != 0 {
		if got := s.do(t, req); got.status != row.shard || !strings.Contains(got.body, s.names.Replace(row.contains)) {
			t.Errorf("%s %s: the shard answers %d, want %d and %q: %.500s", row.section, row.description, got.status, row.shard, row.contains, got.body)
		}
	}
	if req.proxy = true; row.proxy != 0 {
		if got := s.do(t, req); got.status != row.proxy {
			t.Errorf("%s %s: the proxy answers %d, want %d: %.500s", row.section, row.description, got.status, row.proxy, got.body)
		}
	}
}

// urlRows covers the URL space (1), access (6), and the summary of status codes (11).
func urlRows() []row {
	const initializing = "/services/initializingworkspaces/root:universal/clusters/"
	return []row{
		{"1.1", "a cluster by its name", "alice", "/clusters/{a}" + namespaces, "", 200, 200, ""},
		{"1.1", "a cluster by its path", "alice", "/clusters/root:a" + namespaces, "", 200, 200, ""},
		{"1.1", "a malformed cluster", "masters", "/clusters/No_t" + namespaces, "", 400, 403, "does not match the regex"},
		{"1.1", "a cluster with nothing behind it", "masters", "/clusters/root", "", 400, 403, ""},
		{"1.1", "no cluster behind the prefix", "masters", "/clusters/", "", 400, 403, ""},
		{"1.1", "an empty identity", "masters", "/clusters/{a}" + workspaces + ":", "", 500, 0, "identity"},
		{"1.1", "an identity that nobody has", "masters", "/clusters/{a}" + workspaces + ":abc", "", 404, 0, ""},
		{"1.1", "no cluster at all", "admin", namespaces, "", 403, 404, ""},
		{"1.3", "a path that leads nowhere", "mallory", "/clusters/root:nope" + namespaces, "", 404, 403, `workspaces.tenancy.kcp.io \"root:nope\" not found`},
		{"1.3", "a name that nobody has", "admin", "/clusters/nope" + namespaces, "", 403, 403, ""},
		{"1.3", "a name that nobody has, for masters", "masters", "/clusters/nope" + namespaces, "", 200, 403, `"items":[]`},
		{"1.3", "the home of a user without one", "admin", "/clusters/user:carol" + namespaces, "", 404, 403, ""},
		{"1.3", "a user without a name", "admin", "/clusters/user" + namespaces, "", 403, 403, ""},
		{"1.5", "lists of all clusters", "masters", "/clusters/*" + namespaces, "", 200, 403, ""},
		{"1.5", "lists of all clusters are for masters", "admin", "/clusters/*" + namespaces, "", 403, 403, ""},
		{"1.5", "one object of all clusters", "masters", "/clusters/*" + namespaces + "/default", "", 405, 403, "logical cluster"},
		{"1.5", "creating in all clusters", "masters", "POST /clusters/*" + namespaces, `{"metadata":{"name":"x"}}`, 405, 403, ""},
		{"1.5", "a custom resource of all clusters, without identity", "masters", "/clusters/*/apis/example.com/v1/things", "", 404, 403, ""},
		{"1.7", "health", "nobody", "/readyz", "", 200, 200, ""},
		{"1.7", "health below a cluster", "nobody", "/clusters/root/livez", "", 200, 0, ""},
		{"1.7", "metrics below a cluster", "masters", "/clusters/root/metrics", "", 501, 501, "shard-level endpoint not available at workspace scope"},
		{"1.7", "metrics", "admin", "/metrics", "", 200, 200, ""},
		{"1.7", "metrics are not for users", "alice", "/metrics", "", 403, 403, ""},
		{"1.7", "the version of a cluster", "alice", "/clusters/{a}/version", "", 200, 200, "gitVersion"},
		{"1.7", "the version of another's cluster", "mallory", "/clusters/{a}/version", "", 403, 403, ""},
		{"1.7", "OpenAPI of a cluster", "alice", "/clusters/{a}/openapi/v3", "", 200, 200, "apis/core.kcp.io/v1alpha1"},
		{"1.7", "OpenAPI without a cluster", "masters", "/openapi/v3", "", 404, 404, ""},
		{"2.3", "a system cluster", "masters", "/clusters/system:admin" + namespaces, "", 200, 403, ""},
		{"2.3", "a system cluster is for masters", "admin", "/clusters/system:admin" + namespaces, "", 403, 403, ""},
		{"6.3", "another's workspace", "mallory", "/clusters/{a}" + namespaces, "", 403, 403, "access denied"},
		{"6.3", "a workspace without a credential", "nobody", "/clusters/{a}" + namespaces, "", 403, 401, ""},
		{"6.3", "a workspace with a wrong credential", "liar", "/clusters/{a}" + namespaces, "", 401, 401, ""},
		{"6.3", "everybody may enter root", "mallory", "/clusters/root" + workspaces, "", 200, 200, ""},
		{"6.3", "not everybody may look into root", "mallory", "/clusters/root" + secrets, "", 403, 403, ""},
		{"5.1", "a service that does not exist", "alice", "/services/nothing/x", "", 403, 403, "Path not resolved to a valid virtual workspace"},
		{"5.1", "a service that does not exist, for masters", "masters", "/services/nothing/x", "", 404, 403, ""},
		{"5.4", "the initializing workspaces of a type", "admin", initializing + "*" + clusters, "", 200, 200, "LogicalClusterList"},
		{"5.4", "they are for those who may initialize", "alice", initializing + "*" + clusters, "", 403, 403, ""},
		{"5.4", "what is no initializer", "admin", strings.Replace(initializing, "root:", "", 1) + "*" + clusters, "", 403, 403, ""},
		{"5.4", "a workspace that does not initialize", "admin", initializing + "{a}" + ownClusterPath, "", 404, 404, ""},
		{"5.4", "its content", "admin", initializing + "{b}" + namespaces, "", 403, 403, `initializer "root:universal" cannot access this workspace`},
		{"5.4", "the content of none", "admin", initializing + "nope" + namespaces, "", 500, 403, ""},
		{"5.1", "a workspace by its path", "admin", initializing + "root:a" + ownClusterPath, "", 403, 403, ""},
		{"5.1", "a verb that is not offered", "admin", "DELETE " + initializing + "*" + clusters, "", 405, 405, ""},
		{"5.1", "an API that is not in the set", "admin", initializing + "*/api/v1/configmaps", "", 404, 404, ""},
	}
}

// logicalClusterRows covers section 2: what tenants may do to the LogicalCluster object of their own cluster.
func logicalClusterRows() []row {
	const patchCluster, patchStatus = "PATCH /clusters/{b}" + ownClusterPath + dryRun, "PATCH /clusters/{b}" + ownClusterPath + "/status" + dryRun
	const idle = "/clusters/{idle}"
	return []row{
		{"2.4", "only one name exists", "masters", "POST /clusters/{b}" + clusters, `{"metadata":{"name":"other"}}`, 422, 403, "supported values"},
		{"2.4", "phases are given", "bob", patchStatus, `{"status":{"phase":"Bogus"}}`, 422, 422, ""},
		{"2.4", "names of initializers have a pattern", "bob", patchStatus, `{"status":{"initializers":["UP"]}}`, 422, 422, ""},
		{"2.6", "tenants create none", "bob", "POST /clusters/{b}" + clusters, `{"metadata":{"name":"cluster"}}`, 403, 403, "LogicalCluster cannot be created"},
		{"2.6", "tenants delete none", "bob", "DELETE /clusters/{b}" + clusters + "/cluster", "", 403, 403, "LogicalCluster cannot be deleted"},
		{"2.6", "kcp's administrator deletes none", "admin", "DELETE /clusters/{b}" + clusters + "/cluster" + dryRun, "", 403, 403, "LogicalCluster cannot be deleted"},
		{"2.6", "managers of logical clusters do", "manager", "DELETE /clusters/{b}" + clusters + "/cluster" + dryRun, "", 200, 403, ""},
		{"2.6", "the creator stays", "bob", patchCluster, `{"spec":{"createdBy":{"username":"eve"}}}`, 403, 403, "spec.createdBy is immutable"},
		{"2.6", "initializers stay", "bob", patchCluster, `{"spec":{"initializers":["root:xx"]}}`, 403, 403, "spec.initializers is immutable"},
		{"2.6", "none is to be done again", "bob", patchStatus, `{"status":{"initializers":["root:xx"]}}`, 403, 403, "status.initializers"},
		{"2.6", "the phase does not go back", "bob", patchStatus, `{"status":{"phase":"Initializing"}}`, 403, 403, "status.phase cannot go back"},
		{"2.6", "other metadata is the tenant's", "bob", patchCluster, `{"metadata":{"labels":{"mine":"yes"}}}`, 200, 200, ""},
		{"7.4", "a dropped finalizer comes back", "bob", patchCluster, `{"metadata":{"finalizers":[]}}`, 200, 200, "core.kcp.io/logicalcluster-deletion"},
		{"2.7", "an inactive cluster", "bob", idle + namespaces, "", 403, 403, `logicalclusters.core.kcp.io \"{idle}\" is forbidden: logical cluster is marked inactive`},
		{"2.7", "an inactive cluster, for masters", "masters", idle + namespaces, "", 403, 403, "marked inactive"},
		{"2.7", "what activates it", "bob", idle + clusters + "/cluster", "", 200, 200, `"phase":"Inactive"`},
		{"2.7", "its OpenAPI", "bob", idle + "/openapi/v3", "", 200, 200, ""},
	}
}

// workspaceRows covers the parts of section 3 that concern Workspace objects.
func workspaceRows() []row {
	create := "POST /clusters/root:a" + workspaces + dryRun
	update := "PATCH /clusters/root" + workspaces + "/a" + dryRun
	return []row{
		{"3.1", "names have a pattern", "alice", create, `{"metadata":{"name":"Bad_"},"spec":{}}`, 422, 422, "metadata.name"},
		{"3.1", "names have 63 characters", "alice", create, `{"metadata":{"name":"` + strings.Repeat("a", 64) + `"},"spec":{}}`, 422, 422, ""},
		{"3.1", "the URL is the server's", "alice", create, `{"metadata":{"name":"x"},"spec":{"URL":"https://x"}}`, 403, 403, "spec.URL"},
		{"3.1", "the cluster is the server's", "alice", create, `{"metadata":{"name":"x"},"spec":{"cluster":"x"}}`, 403, 403, "spec.cluster"},
		{"3.1", "the owner is whoever asks", "alice", create, `{"metadata":{"name":"x","annotations":{"experimental.tenancy.kcp.io/owner":"{\"username\":\"eve\"}"}},"spec":{}}`, 201, 201, `{\"username\":\"alice\"`},
		{"3.1", "the URL stays", "masters", update, `{"spec":{"URL":null}}`, 422, 403, "URL cannot be unset"},
		{"3.1", "the cluster stays", "masters", update, `{"spec":{"cluster":"other"}}`, 422, 403, "immutable"},
		{"3.1", "the type stays", "masters", update, `{"spec":{"type":{"name":"team"}}}`, 422, 403, "immutable"},
		{"3.1", "the status is not the tenant's", "bob", "PATCH /clusters/{b}" + workspaces + "/x/status", `{"status":{}}`, 403, 403, "access denied"},
		{"3.3", "without a type, it is the default child of the parent's", "alice", create, `{"metadata":{"name":"x"},"spec":{}}`, 201, 201, `"type":{"name":"universal","path":"root"}`},
		{"3.3", "a type is looked for above", "alice", create, `{"metadata":{"name":"x"},"spec":{"type":{"name":"universal"}}}`, 201, 201, `"path":"root"`},
		{"3.3", "a type that nobody has", "alice", create, `{"metadata":{"name":"x"},"spec":{"type":{"name":"nope"}}}`, 403, 403, ""},
		{"3.3", "a type that is not where it is said to be", "alice", create, `{"metadata":{"name":"x"},"spec":{"type":{"name":"universal","path":"root:a"}}}`, 403, 403, ""},
		{"3.3", "a type that one may not use", "alice", create, `{"metadata":{"name":"x"},"spec":{"type":{"name":"home","path":"root"}}}`, 403, 403, "missing verb=use permission on workspacetype"},
		{"3.3", "a type that belongs elsewhere", "alice", create, `{"metadata":{"name":"x"},"spec":{"type":{"name":"team","path":"root"}}}`, 403, 403, "limitAllowedParents"},
		{"3.6", "a mount names what it mounts", "alice", create, `{"metadata":{"name":"x"},"spec":{"mount":{"ref":{"apiVersion":"v1","kind":"ConfigMap"}}}}`, 422, 422, ""},
	}
}

// typeRows covers the parts of section 3 that concern WorkspaceType objects.
func typeRows() []row {
	create := "POST /clusters/{a}" + types + dryRun
	spec := func(spec string) string { return `{"metadata":{"name":"tt"},"spec":` + spec + `}` }
	return []row{
		{"3.7", "a type with defaults", "alice", create, spec(`{}`), 201, 201, `"defaultChildWorkspaceType":{"name":"universal","path":"root"}`},
		{"7.3", "a type says where it is", "alice", create, spec(`{}`), 201, 201, `"kcp.io/path":"root:a"`},
		{"3.7", "system is no name", "masters", create, `{"metadata":{"name":"system"},"spec":{}}`, 403, 403, "name is reserved"},
		{"3.7", "any is no name", "alice", create, `{"metadata":{"name":"any"},"spec":{}}`, 403, 403, "name is reserved"},
		{"3.7", "root is for root", "alice", create, `{"metadata":{"name":"root"},"spec":{}}`, 403, 403, ""},
		{"3.7", "names have a pattern", "alice", create, `{"metadata":{"name":"Bad"},"spec":{}}`, 422, 422, ""},
		{"3.7", "the default child has a path", "alice", create, spec(`{"defaultChildWorkspaceType":{"name":"universal"}}`), 403, 403, "path must be set"},
		{"3.7", "allowed children have paths", "alice", create, spec(`{"limitAllowedChildren":{"types":[{"name":"universal"}]}}`), 403, 403, "path must be set"},
		{"3.7", "none and some exclude each other", "alice", create, spec(`{"limitAllowedParents":{"none":true,"types":[{"name":"universal","path":"root"}]}}`), 422, 422, ""},
		{"3.7", "neither is no limit", "alice", create, spec(`{"limitAllowedParents":{}}`), 422, 422, ""},
		{"3.7", "some are at least one", "alice", create, spec(`{"limitAllowedParents":{"types":[]}}`), 422, 422, ""},
		{"3.7", "bindings need a permission", "alice", create, spec(`{"defaultAPIBindings":[{"path":"root","export":"nope"}]}`), 403, 403, "no permission to bind to export root:nope"},
		{"3.7", "bindings that one may have", "alice", create, spec(`{"defaultAPIBindings":[{"path":"root","export":"tenancy.kcp.io"}]}`), 201, 201, ""},
		{"3.7", "life cycles are given", "alice", create, spec(`{"defaultAPIBindingLifecycle":"Bogus"}`), 422, 422, ""},
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
		{"7.2", "a namespace that stays", "bob", "DELETE /clusters/{b}" + namespaces + "/default", "", 403, 403, ""},
		{"7.2", "another namespace that stays", "masters", "DELETE /clusters/{b}" + namespaces + "/kube-system", "", 403, 403, ""},
		{"7.2", "a namespace that is missing", "bob", "POST /clusters/{b}" + namespaces + "/nope/configmaps", `{"metadata":{"name":"x"}}`, 404, 404, `namespaces \"nope\" not found`},
		{"7.2", "a shard without its URL", "masters", "POST /clusters/root" + shards + dryRun, `{"metadata":{"name":"x"},"spec":{}}`, 500, 403, "spec.baseURL is required"},
		{"7.2", "a shard's other URLs", "masters", "POST /clusters/root" + shards + dryRun, `{"metadata":{"name":"x"},"spec":{"baseURL":"https://x"}}`, 201, 403, `"externalURL":"https://x","virtualWorkspaceURL":"https://x"`},
		{"7.2", "a definition of one's own", "bob", define, definition("example.com", ""), 201, 201, ""},
		{"7.2", "a definition in kcp's group", "masters", define, definition("apis.kcp.io", ""), 403, 403, ""},
		{"7.2", "a definition in what ends like kcp's group", "bob", define, definition("xapis.kcp.io", ""), 403, 403, ""},
		{"7.2", "a definition with kcp's annotation", "masters", define, definition("example.com", `"apis.kcp.io/bound-crd":""`), 403, 403, ""},
		{"7.2", "a definition in another group of kcp", "bob", define, definition("xx.kcp.io", ""), 201, 201, ""},
		{"7.2", "a definition with an annotation below kcp's", "bob", define, definition("example.com", `"x.apis.kcp.io/y":""`), 403, 403, "reserved"},
		{"7.2", "one that only ends like it", "bob", define, definition("example.com", `"xapis.kcp.io/y":""`), 201, 201, ""},
		{"9.5", "a definition in a group of Kubernetes", "bob", define, definition("example.k8s.io", ""), 422, 422, "api-approved.kubernetes.io"},
		{"7.3", "who claims a path gets the true one", "bob", "POST /clusters/{b}" + configMaps + dryRun, `{"metadata":{"name":"x","annotations":{"kcp.io/path":"root:a"}}}`, 201, 201, `"kcp.io/path":"root:b"`},
		{"7.2", "reserved metadata, switched on", "bob", "POST /clusters/{b}" + configMaps + dryRun, `{"metadata":{"name":"x","labels":{"example.com/kcp.io":"y"}}}`, 403, 403, "reserved for the system"},
		{"7.2", "reserved metadata, for masters", "masters", "POST /clusters/{b}" + configMaps + dryRun, `{"metadata":{"name":"x","labels":{"example.com/kcp.io":"y"}}}`, 201, 403, ""},
		{"7.1", "what needs a quota, without one", "bob", "POST /clusters/{b}" + secrets + dryRun, `{"metadata":{"name":"x"}}`, 403, 403, "insufficient quota to consume: count/secrets"},
		{"7.1", "what needs none", "bob", "POST /clusters/{b}" + configMaps + dryRun, `{"metadata":{"name":"x"}}`, 201, 201, ""},
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
