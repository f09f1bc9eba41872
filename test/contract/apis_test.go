package contract

import (
	"net/http"
	"strings"
	"testing"
)

// Paths of apis.kcp.io, below a logical cluster.
const (
	schemas        = "/apis/apis.kcp.io/v1alpha1/apiresourceschemas"
	exports        = "/apis/apis.kcp.io/v1alpha2/apiexports"
	oldExports     = "/apis/apis.kcp.io/v1alpha1/apiexports"
	bindings       = "/apis/apis.kcp.io/v1alpha2/apibindings"
	oldBindings    = "/apis/apis.kcp.io/v1alpha1/apibindings"
	endpointSlices = "/apis/apis.kcp.io/v1alpha1/apiexportendpointslices"
)

// widgetSpec is the spec of a schema of widgets.example.io.
const widgetSpec = `{"group":"example.io","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},
	"versions":[{"name":"v1","served":true,"storage":true,"schema":{"type":"object"}}]}`

// exportAPI has alice export widgets from root:a in two identical exports. bob may bind the first, and has bound it.
func (e *env) exportAPI(t *testing.T) {
	t.Helper()
	create := func(user, path, body string) {
		t.Helper()
		e.must(t, request{user: user, method: http.MethodPost, path: path, body: body})
	}
	// Secrets need a quota here (see admissionConfiguration), those of export identities included.
	create("alice", "/clusters/{a}"+namespaces, `{"metadata":{"name":"kcp-system"}}`)
	create("alice", "/clusters/{a}"+namespaces+"/kcp-system/resourcequotas", `{"metadata":{"name":"identities"},"spec":{"hard":{"count/secrets":"9"}}}`)
	create("alice", "/clusters/{a}"+schemas, `{"metadata":{"name":"v1.widgets.example.io"},"spec":`+widgetSpec+`}`)
	for _, name := range []string{"widgets", "hidden"} {
		create("alice", "/clusters/{a}"+exports, `{"metadata":{"name":"`+name+`"},"spec":{"resources":[{"name":"widgets","group":"example.io","schema":"v1.widgets.example.io"}]}}`)
	}
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	create("alice", "/clusters/{a}"+rbac+"clusterroles", `{"metadata":{"name":"bind"},"rules":[{"apiGroups":["apis.kcp.io"],"resources":["apiexports"],"resourceNames":["widgets"],"verbs":["bind"]}]}`)
	create("alice", "/clusters/{a}"+rbac+"clusterrolebindings", `{"metadata":{"name":"bind"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"bind"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"bob"}]}`)
	e.waitForStatus(t, request{user: "bob", method: http.MethodPost, path: "/clusters/{b}" + bindings, body: bindingJSON("w", "root:a", "widgets")}, http.StatusCreated)
	e.waitForRow(t, row{"12.2", "the binding is bound", "bob", "/clusters/{b}" + bindings + "/w", "", 200, 0, `"phase":"Bound"`})
	e.addPlaceholders("{identity}", e.exportIdentity(t, "{a}", "widgets"), "{tenancy}", e.exportIdentity(t, "root", "tenancy.kcp.io"))
}

// exportIdentity returns the identity hash of an export.
func (e *env) exportIdentity(t *testing.T, cluster, name string) string {
	t.Helper()
	var export struct{ Status struct{ IdentityHash string } }
	e.must(t, request{user: "masters", path: "/clusters/" + cluster + exports + "/" + name}).decode(t, &export)
	return export.Status.IdentityHash
}

func bindingJSON(name, path, export string) string {
	return `{"metadata":{"name":"` + name + `"},"spec":{"reference":{"export":{"path":"` + path + `","name":"` + export + `"}}}}`
}

// apiRows covers the parts of section 4 that concern single writes, with their admission (7) and authorization (6).
func apiRows() []row {
	rows := append(schemaRows(), exportRows()...)
	rows = append(rows, bindingRows()...)
	for path, resources := range map[string]string{
		"/apis/apis.kcp.io/v1alpha1": "apiexports apiexports/status apibindings apibindings/status apiresourceschemas apiexportendpointslices apiexportendpointslices/status apiconversions",
		"/apis/apis.kcp.io/v1alpha2": "apiexports apiexports/status apibindings apibindings/status",
	} {
		for _, resource := range strings.Fields(resources) {
			rows = append(rows, row{"9.2", resource + " in " + path, "bob", "/clusters/{b}" + path, "", 200, 200, `"name":"` + resource + `"`})
		}
	}
	return rows
}

func schemaRows() []row {
	create := "POST /clusters/{b}" + schemas + dryRun
	named := func(name, spec string) string { return `{"metadata":{"name":"` + name + `"},"spec":` + spec + `}` }
	with := func(from, to string) string { return strings.Replace(widgetSpec, from, to, 1) }
	const name = "v1.widgets.example.io"
	return []row{
		{"4.1", "create a schema", "bob", create, named(name, widgetSpec), 201, 201, `"nameValidation":"DNS1123Subdomain"`},
		{"4.1", "all versions are served", "bob", create, named(name, with(`"served":true,`, "")), 201, 201, `"served":true`},
		{"4.1", "name without the resource suffix is Forbidden", "bob", create, named("v1.gadgets.example.io", widgetSpec), 403, 403, "must end in .widgets.example.io"},
		{"4.1", "name with an invalid prefix is Forbidden", "bob", create, named("1.widgets.example.io", widgetSpec), 403, 403, "must match"},
		{"4.1", "spec is immutable", "alice", "PATCH /clusters/{a}" + schemas + "/" + name + dryRun, `{"spec":{"scope":"Cluster"}}`, 403, 403, "is immutable"},
		{"4.1", "metadata can be changed", "alice", "PATCH /clusters/{a}" + schemas + "/" + name + dryRun, `{"metadata":{"labels":{"a":"b"}}}`, 200, 200, ""},
		{"4.1", "group core is Forbidden", "bob", create, named("v1.widgets.core", with("example.io", "core")), 403, 403, "spec.group"},
		{"4.1", "the empty group is the core group", "bob", create, named("v1.widgets.core", with("example.io", "")), 201, 201, ""},
		{"4.1", "group without a dot is Forbidden", "bob", create, named("v1.widgets.example", with("example.io", "example")), 403, 403, "spec.group"},
		{"4.1", "group apps is allowed", "bob", create, named("v1.widgets.apps", with("example.io", "apps")), 201, 201, ""},
		{"4.1", "unapproved Kubernetes group is Forbidden", "bob", create, named("v1.widgets.x.k8s.io", with("example.io", "x.k8s.io")), 403, 403, "api-approved.kubernetes.io"},
		{"4.1", "missing singular is Forbidden", "bob", create, named(name, with(`"singular":"widget",`, "")), 403, 403, "spec.names.singular"},
		{"4.1", "no storage version is Forbidden", "bob", create, named(name, with(`"storage":true`, `"storage":false`)), 403, 403, ""},
		{"4.1", "non-structural schema is Forbidden", "bob", create, named(name, with(`{"type":"object"}`, `{"type":"object","properties":{"a":{}}}`)), 403, 403, ""},
		{"4.1", "invalid version name", "bob", create, named(name, with(`"name":"v1"`, `"name":"one"`)), 422, 422, "spec.versions"},
		{"4.1", "invalid scope", "bob", create, named(name, with("Namespaced", "World")), 422, 422, "spec.scope"},
		{"4.1", "no versions", "bob", create, named(name, with(`{"name":"v1","served":true,"storage":true,"schema":{"type":"object"}}`, "")), 422, 422, "spec.versions"},
		{"4.1", "no status subresource", "alice", "/clusters/{a}" + schemas + "/" + name + "/status", "", 404, 404, ""},
	}
}

func exportRows() []row {
	create := "POST /clusters/{b}" + exports + dryRun
	createOld := "POST /clusters/{b}" + oldExports + dryRun
	createSlice := "POST /clusters/{b}" + endpointSlices + dryRun
	spec := func(spec string) string { return `{"metadata":{"name":"e"},"spec":` + spec + `}` }
	slice := func(path, name string) string {
		return spec(`{"export":{"path":"` + path + `","name":"` + name + `"}}`)
	}
	return []row{
		{"4.2", "create an export with default storage", "bob", create, spec(`{"resources":[{"name":"x","group":"example.io","schema":"v1.x.example.io"}]}`), 201, 201, `"storage":{"crd":{}}`},
		{"7.3", "path annotation of an export", "bob", create, spec(`{}`), 201, 201, `"kcp.io/path":"root:b"`},
		{"4.2", "schema of another resource is Forbidden", "bob", create, spec(`{"resources":[{"name":"x","group":"example.io","schema":"v1.y.example.io"}]}`), 403, 403, "must end in .x.example.io"},
		{"4.2", "more than one storage", "bob", create, spec(`{"resources":[{"name":"x","group":"example.io","schema":"v1.x.example.io","storage":{"crd":{},"virtual":{"identityHash":"a","reference":{"kind":"K","name":"a"}}}}]}`), 422, 422, "storage"},
		{"4.2", "claim of a built-in resource", "bob", create, spec(`{"permissionClaims":[{"resource":"secrets","verbs":["*"]}]}`), 201, 201, `"group":"","resource":"secrets"`},
		{"4.2", "claim of an exported resource without identity is Forbidden", "bob", create, spec(`{"permissionClaims":[{"group":"example.io","resource":"widgets","verbs":["*"]}]}`), 403, 403, "identityHash is required for API types that are not built-in"},
		{"4.2", "claim without verbs", "bob", create, spec(`{"permissionClaims":[{"resource":"secrets","verbs":[]}]}`), 422, 422, "verbs"},
		{"4.2", "duplicate claim", "bob", create, spec(`{"permissionClaims":[{"resource":"secrets","verbs":["get"]},{"resource":"secrets","verbs":["list"]}]}`), 422, 422, "Duplicate"},
		{"4.2", "v1alpha1: claim of all objects", "bob", createOld, spec(`{"permissionClaims":[{"resource":"secrets","all":true}]}`), 201, 201, `"all":true`},
		{"4.2", "v1alpha1: claim without objects", "bob", createOld, spec(`{"permissionClaims":[{"resource":"secrets"}]}`), 422, 422, "resourceSelector"},
		{"4.2", "v1alpha1: invalid conversion annotation is Forbidden", "bob", createOld, `{"metadata":{"name":"e","annotations":{"apis.v1alpha2.kcp.io/permission-claims":"["}},"spec":{}}`, 403, 403, "cannot be used"},
		{"4.2", "v1alpha1: get an export", "alice", "/clusters/{a}" + oldExports + "/widgets", "", 200, 200, `"latestResourceSchemas":["v1.widgets.example.io"]`},
		{"6.3", "write of the status is Forbidden", "alice", "PATCH /clusters/{a}" + exports + "/widgets/status" + dryRun, `{"status":{"identityHash":"x"}}`, 403, 403, "access denied"},
		{"6.3", "get of the status is Forbidden", "alice", "/clusters/{a}" + exports + "/widgets/status", "", 403, 403, "access denied"},
		{"6.3", "v1alpha1: get of the status is Forbidden", "alice", "/clusters/{a}" + oldExports + "/widgets/status", "", 403, 403, "access denied"},
		{"4.5", "endpoint slice with bind permission", "bob", createSlice, slice("root:a", "widgets"), 201, 201, ""},
		{"4.5", "endpoint slice without bind permission is Forbidden", "bob", createSlice, slice("root:a", "hidden"), 403, 403, "unable to create APIExportEndpointSlice: no permission to bind to export root:a:hidden"},
		{"4.5", "endpoint slice of a missing export is Forbidden", "bob", createSlice, slice("root:a", "nope"), 403, 403, "no permission to bind to export root:a:nope"},
	}
}

func bindingRows() []row {
	create, createOld := "POST /clusters/{b}"+bindings+dryRun, "POST /clusters/{b}"+oldBindings+dryRun
	update := "PATCH /clusters/{b}" + bindings + "/w" + dryRun
	claims := func(claim string) string { return `{"spec":{"permissionClaims":[` + claim + `]}}` }
	return []row{
		{"4.7", "bind with bind permission", "bob", create, bindingJSON("x", "root:a", "widgets"), 201, 201, `"internal.apis.kcp.io/export":`},
		{"4.7", "bind by logical cluster name", "bob", create, bindingJSON("x", "{a}", "widgets"), 201, 201, ""},
		{"7.4", "finalizer of a binding", "bob", create, bindingJSON("x", "root:a", "widgets"), 201, 201, "apis.kcp.io/apibinding-finalizer"},
		{"7.3", "path annotation of a binding", "bob", create, bindingJSON("x", "root:a", "widgets"), 201, 201, `"kcp.io/path":"root:b"`},
		{"4.7", "bind without bind permission is Forbidden", "bob", create, bindingJSON("x", "root:a", "hidden"), 403, 403, "unable to create APIBinding: no permission to bind to export root:a:hidden"},
		{"4.7", "bind a missing export is Forbidden", "bob", create, bindingJSON("x", "root:a", "nope"), 403, 403, "no permission to bind to export root:a:nope"},
		{"4.7", "bind in a missing workspace is Forbidden", "bob", create, bindingJSON("x", "root:nope", "widgets"), 403, 403, "no permission to bind to export root:nope:widgets"},
		{"4.7", "bind a missing export of root", "masters", create, bindingJSON("x", "root", "nope"), 201, 403, ""},
		{"4.7", "bind a missing export of the same workspace", "bob", create, `{"metadata":{"name":"x"},"spec":{"reference":{"export":{"name":"later"}}}}`, 201, 201, ""},
		{"4.4", "any user may bind the tenancy API", "bob", create, bindingJSON("x", "root", "tenancy.kcp.io"), 201, 201, ""},
		{"4.4", "bind of the shards API is Forbidden", "bob", create, bindingJSON("x", "root", "shards.core.kcp.io"), 403, 403, "no permission to bind"},
		{"4.7", "invalid path", "bob", create, bindingJSON("x", "root:", "widgets"), 422, 422, ""},
		{"4.7", "reference is immutable", "bob", update, `{"spec":{"reference":{"export":{"path":"{a}"}}}}`, 422, 422, "APIExport reference must not be changed"},
		{"7.4", "removed finalizer is restored", "bob", update, `{"metadata":{"finalizers":[]}}`, 200, 200, "apis.kcp.io/apibinding-finalizer"},
		{"7.3", "removed label is restored", "bob", update, `{"metadata":{"labels":null}}`, 200, 200, `"internal.apis.kcp.io/export":`},
		{"K2.30", "deletion policy", "bob", update, `{"spec":{"deletionPolicy":"WaitForSuccessor"}}`, 200, 200, `"deletionPolicy":"WaitForSuccessor"`},
		{"K2.30", "unknown deletion policy", "bob", update, `{"spec":{"deletionPolicy":"Orphan"}}`, 422, 422, "deletionPolicy"},
		{"K2.22", "accept a claim of a subresource", "bob", update, claims(`{"resource":"serviceaccounts/token","verbs":["create"],"state":"Accepted","selector":{}}`), 200, 200, ""},
		{"K2.22", "accept a claim of a subresource by labels is Forbidden", "bob", update, claims(`{"resource":"serviceaccounts/token","verbs":["create"],"state":"Accepted","selector":{"matchLabels":{"a":"b"}}}`), 403, 403, "selector"},
		{"4.7", "accept a claim", "bob", update, claims(`{"resource":"secrets","verbs":["get"],"state":"Accepted","selector":{"matchAll":true}}`), 200, 200, `"identityHash":""`},
		{"4.7", "matchAll with matchLabels is Forbidden", "bob", update, claims(`{"resource":"secrets","verbs":["get"],"state":"Accepted","selector":{"matchAll":true,"matchLabels":{"a":"b"}}}`), 403, 403, "matchAll"},
		{"4.7", "empty selector is Forbidden", "bob", update, claims(`{"resource":"secrets","verbs":["get"],"state":"Accepted","selector":{}}`), 403, 403, "matchAll"},
		{"4.7", "invalid claim state", "bob", update, claims(`{"resource":"secrets","verbs":["get"],"state":"Maybe","selector":{"matchAll":true}}`), 422, 422, "state"},
		{"4.7", "v1alpha1: create a binding", "bob", createOld, `{"metadata":{"name":"x"},"spec":{"reference":{"export":{"path":"root:a","name":"widgets"}},"permissionClaims":[{"resource":"secrets","all":true,"state":"Accepted"}]}}`, 201, 201, `"all":true`},
		{"4.7", "v1alpha1: binding without an export", "bob", createOld, `{"metadata":{"name":"x"},"spec":{"reference":{}}}`, 422, 422, "spec.reference"},
		{"6.3", "write of the status is Forbidden", "bob", "PATCH /clusters/{b}" + bindings + "/w/status" + dryRun, `{"status":{"phase":"Bound"}}`, 403, 403, "access denied"},
		{"6.3", "get of the status is Forbidden", "bob", "/clusters/{b}" + bindings + "/w/status", "", 403, 403, "access denied"},
		{"6.3", "get of the status by system:masters", "masters", "/clusters/{b}" + bindings + "/w/status", "", 200, 403, ""},
	}
}
