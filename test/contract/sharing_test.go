package contract

import (
	"net/http"
	"strings"
	"testing"
)

// exportVirtualWorkspacePath is the virtual workspace in which alice sees the consumers of her export.
const exportVirtualWorkspacePath = "/services/apiexport/{a}/widgets/clusters/"

// TestAPISharing covers the flows of an exported API (12.2) and of claims (12.4), then a binding whose export is
// deleted and created again (4.8), and the deletion of a binding (4.9).
func TestAPISharing(t *testing.T) {
	s := newEnv(t)
	s.exportAPI(t)
	s.testPublish(t)
	s.testAdmissionPolicies(t)
	s.testClaims(t)
	s.testExportRecreation(t)
	s.testUnbind(t)
}

func (e *env) waitForRows(t *testing.T, rows ...row) {
	t.Helper()
	for _, row := range rows {
		e.waitForRow(t, row)
	}
}

func (e *env) testPublish(t *testing.T) {
	t.Helper()
	const export, slice, binding = "/clusters/{a}" + exports + "/widgets", "/clusters/{a}" + endpointSlices + "/widgets", "/clusters/{b}" + bindings + "/w"
	const widget = `{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"name":"one"},"spec":{}}`
	e.waitForRows(t,
		row{"4.3", "an export refers to an identity secret", "alice", export, "", 200, 0, `"identity":{"secretRef":{"name":"widgets","namespace":"kcp-system"}}`},
		row{"4.3", "the identity of the export is valid", "alice", export, "", 200, 0, `"conditions":[{"type":"IdentityValid","status":"True",`},
		row{"4.5", "an endpoint slice is created", "alice", slice, "", 200, 0, `"ownerReferences":[{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","name":"widgets",`},
		row{"4.5", "the endpoint slice resolves the export", "alice", slice, "", 200, 0, `{"type":"APIExportValid","status":"True",`},
		row{"4.5", "the endpoint slice has the URL of the consumer's shard", "alice", slice, "", 200, 0, `/services/apiexport/{a}/widgets"}]`},
		row{"4.7", "the binding has the export's logical cluster", "bob", binding, "", 200, 0, `"apiExportClusterName":"{a}"`},
		row{"4.7", "the binding has the bound resources", "bob", binding, "", 200, 0, `"identityHash":"{identity}"},"storageVersions":["v1"]}]`},
		row{"4.8", "the binding is Ready", "bob", binding, "", 200, 0, `"conditions":[{"type":"Ready","status":"True",`},
		row{"4.8", "the initial binding is completed", "bob", binding, "", 200, 0, `{"type":"InitialBindingCompleted","status":"True",`},
		row{"4.8", "the binding is up to date", "bob", binding, "", 200, 0, `{"type":"BindingUpToDate","status":"True",`},
		row{"4.7", "the LogicalCluster has the lock of the resource", "bob", "/clusters/{b}" + ownClusterPath, "", 200, 0, `\"widgets.example.io\":{\"n\":\"w\"}`},
		row{"12.2", "the consumer discovers the API", "bob", "/clusters/{b}/apis/example.io/v1", "", 200, 0, `"name":"widgets"`},
		row{"12.2", "the consumer creates an object", "bob", "POST /clusters/{b}/apis/example.io/v1/namespaces/default/widgets", widget, 201, 0, `"kcp.io/cluster":"{b}"`},
		row{"12.2", "the provider lists the object", "alice", exportVirtualWorkspacePath + "*" + widgetsPath, "", 200, 0, `"kcp.io/cluster":"{b}"`},
		row{"12.2", "roles with bind permission are replicated", "alice", "/clusters/{a}/apis/rbac.authorization.k8s.io/v1/clusterroles/bind", "", 200, 0, `"internal.kcp.io/replicate":"apis.kcp.io"`},
		row{"4.2", "annotate the export", "alice", "PATCH " + export, `{"metadata":{"annotations":{"extra.apis.kcp.io/a":"b"}}}`, 200, 0, ""},
		row{"4.2", "the binding has the annotation of the export", "bob", binding, "", 200, 0, `"extra.apis.kcp.io/a":"b"`},
		row{"4.2", "add a resource without a schema", "alice", "PATCH " + export, `{"spec":{"resources":[{"name":"gears","group":"example.io","schema":"v1.gears.example.io"},{"name":"widgets","group":"example.io","schema":"v1.widgets.example.io"}]}}`, 200, 0, ""},
		row{"4.8", "the binding reports the missing schema", "bob", binding, "", 200, 0, `{"type":"APIExportValid","status":"False","severity":"Error",`},
		row{"4.8", "create the schema", "alice", "POST /clusters/{a}" + schemas, `{"metadata":{"name":"v1.gears.example.io"},"spec":` + strings.NewReplacer("widget", "gear", "Widget", "Gear").Replace(widgetSpec) + `}`, 201, 0, ""},
		row{"4.8", "the added resource is served", "bob", "/clusters/{b}/apis/example.io/v1/gears", "", 200, 0, "GearList"},
		row{"4.7", "create a second binding of the export", "bob", "POST /clusters/{b}" + bindings, `{"metadata":{"name":"again"},"spec":{"reference":{"export":{"path":"{a}","name":"widgets"}}}}`, 201, 0, ""},
		row{"4.7", "the second binding has naming conflicts", "bob", "/clusters/{b}" + bindings + "/again", "", 200, 0, `"reason":"NamingConflicts"`},
		row{"4.7", "delete the second binding", "bob", "DELETE /clusters/{b}" + bindings + "/again", "", 200, 0, ""},
	)
}

// testAdmissionPolicies has provider and consumer deny a name by policy: only the provider's policies apply to the
// exported resource (7.5).
func (e *env) testAdmissionPolicies(t *testing.T) {
	t.Helper()
	const admission = "/apis/admissionregistration.k8s.io/v1/"
	for cluster, owner := range map[string]string{"{a}": "alice", "{b}": "bob"} {
		e.waitForRows(t,
			row{"7.5", owner + " creates a policy", owner, "POST /clusters/" + cluster + admission + "validatingadmissionpolicies", `{"metadata":{"name":"rule"},"spec":{"matchConstraints":{"resourceRules":
				[{"apiGroups":["example.io"],"apiVersions":["*"],"operations":["CREATE"],"resources":["widgets"]}]},"validations":[{"expression":"object.metadata.name != 'not-of-` + owner + `'","message":"` + owner + ` denies"}]}}`, 201, 0, ""},
			row{"7.5", "binds the policy", owner, "POST /clusters/" + cluster + admission + "validatingadmissionpolicybindings", `{"metadata":{"name":"rule"},"spec":{"policyName":"rule","validationActions":["Deny"]}}`, 201, 0, ""})
	}
	create := func(owner string) string {
		return `{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"name":"not-of-` + owner + `"},"spec":{}}`
	}
	const path = "POST /clusters/{b}/apis/example.io/v1/namespaces/default/widgets" + dryRun
	e.waitForRows(t,
		row{"7.5", "the provider's policy applies to consumers", "bob", path, create("alice"), 422, 0, "alice denies"},
		row{"7.5", "the provider's policy applies to the provider", "alice", "POST " + exportVirtualWorkspacePath + "{b}/apis/example.io/v1/namespaces/default/widgets" + dryRun, create("alice"), 422, 0, "alice denies"},
		row{"7.5", "the consumer's policy does not apply", "bob", path, create("bob"), 201, 0, ""})
}

func (e *env) testClaims(t *testing.T) {
	t.Helper()
	const binding, maps = "/clusters/{b}" + bindings + "/w", exportVirtualWorkspacePath + "*/api/v1/configmaps"
	claim := func(more string) string {
		return `{"spec":{"permissionClaims":[{"resource":"configmaps","verbs":["get","list","watch","create"]` + more + `}]}}`
	}
	e.waitForRows(t,
		row{"12.4", "the provider claims config maps", "alice", "PATCH /clusters/{a}" + exports + "/widgets", claim(""), 200, 0, `"group":"","resource":"configmaps"`},
		row{"12.4", "the binding has the claims of the export", "bob", binding, "", 200, 0, `"exportPermissionClaims":[{"group":"","resource":"configmaps","verbs":["get","list","watch","create"],"identityHash":""}]`},
		row{"12.4", "unaccepted claim is Forbidden", "alice", exportVirtualWorkspacePath + "{b}/api/v1/configmaps", "", 403, 0, "access denied"},
		row{"12.4", "create a matching object", "bob", "POST /clusters/{b}" + configMaps, `{"metadata":{"name":"shown","labels":{"show":"it"}}}`, 201, 0, ""},
		row{"12.4", "create an object that does not match", "bob", "POST /clusters/{b}" + configMaps, `{"metadata":{"name":"private"}}`, 201, 0, ""},
		row{"12.4", "accept the claim with a selector", "bob", "PATCH " + binding, claim(`,"state":"Accepted","selector":{"matchLabels":{"show":"it"}}`), 200, 0, ""},
		row{"12.4", "the claim is applied", "bob", binding, "", 200, 0, `"appliedPermissionClaims":[{"group":"","resource":"configmaps","verbs":["get","list","watch","create"],"identityHash":"","selector":{"matchLabels":{"show":"it"}}}]`},
		row{"4.8", "the condition reports applied claims", "bob", binding, "", 200, 0, `{"type":"PermissionClaimsApplied","status":"True",`},
		row{"4.10", "the matching object has the claim label", "bob", "/clusters/{b}" + configMaps + "/shown", "", 200, 0, `"claimed.internal.apis.kcp.io/`},
		row{"12.4", "the provider lists the matching object", "alice", maps, "", 200, 0, `"name":"shown"`},
		row{"12.4", "get of an object that does not match", "alice", exportVirtualWorkspacePath + "{b}" + configMaps + "/private", "", 404, 0, ""},
		row{"5.2", "objects of the provider get the selected labels", "alice", "POST " + exportVirtualWorkspacePath + "{b}" + configMaps, `{"metadata":{"name":"made"}}`, 201, 0, `"show":"it"`},
		row{"5.2", "create with another label is Forbidden", "alice", "POST " + exportVirtualWorkspacePath + "{b}" + configMaps, `{"metadata":{"name":"bad","labels":{"show":"other"}}}`, 403, 0, "protected label show must have value it"},
		row{"4.10", "unclaimed verb is Forbidden", "alice", "DELETE " + exportVirtualWorkspacePath + "{b}" + configMaps + "/shown", "", 403, 0, "access denied"},
		row{"5.2", "change of the selected label is Forbidden", "alice", "PATCH " + exportVirtualWorkspacePath + "{b}" + configMaps + "/shown", `{"metadata":{"labels":{"show":"other"}}}`, 403, 0, ""},
		row{"4.10", "unclaimed SubjectAccessReview is Forbidden", "alice", "POST " + exportVirtualWorkspacePath + "{b}/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"spec":{"user":"bob","resourceAttributes":{"verb":"get","resource":"configmaps"}}}`, 403, 0, "access denied"},
		row{"4.10", "claim SubjectAccessReviews", "alice", "PATCH /clusters/{a}" + exports + "/widgets", `{"spec":{"permissionClaims":[{"group":"authorization.k8s.io","resource":"subjectaccessreviews","verbs":["create"]},{"resource":"configmaps","verbs":["get","list","watch","create"]}]}}`, 200, 0, ""},
		row{"4.10", "accept the claim of SubjectAccessReviews", "bob", "PATCH " + binding, `{"spec":{"permissionClaims":[{"group":"authorization.k8s.io","resource":"subjectaccessreviews","verbs":["create"],"state":"Accepted","selector":{"matchAll":true}}]}}`, 200, 0, ""},
		row{"4.10", "SubjectAccessReview in the consumer's workspace", "alice", "POST " + exportVirtualWorkspacePath + "{b}/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"spec":{"user":"bob","resourceAttributes":{"verb":"get","resource":"configmaps"}}}`, 201, 0, `"allowed":true`},
		row{"4.10", "SubjectAccessReview of the consumer", "bob", "POST /clusters/{b}/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"spec":{"user":"bob","resourceAttributes":{"verb":"get","resource":"configmaps"}}}`, 201, 0, `"allowed":true`},
		row{"4.8", "accept a claim that the export does not have", "bob", "PATCH " + binding, `{"spec":{"permissionClaims":[{"resource":"secrets","verbs":["get"],"state":"Accepted","selector":{"matchAll":true}}]}}`, 200, 0, ""},
		row{"4.8", "the condition reports the invalid claim", "bob", binding, "", 200, 0, `{"type":"PermissionClaimsValid","status":"False","severity":"Error",`},
		row{"12.4", "reject the claim", "bob", "PATCH " + binding, claim(`,"state":"Rejected","selector":{"matchAll":true}`), 200, 0, ""},
		row{"12.4", "the provider lists no objects", "alice", maps, "", 200, 0, `"items":[]`},
	)
}

func (e *env) testExportRecreation(t *testing.T) {
	t.Helper()
	const export, binding = "/clusters/{a}" + exports + "/widgets", "/clusters/{b}" + bindings + "/w"
	e.waitForRows(t,
		row{"4.8", "delete the export", "alice", "DELETE " + export, "", 200, 0, ""},
		row{"4.8", "the binding reports the missing export", "bob", binding, "", 200, 0, `"reason":"APIExportNotFound"`},
		row{"4.8", "the binding stays bound", "bob", binding, "", 200, 0, `"phase":"Bound"`},
		row{"4.8", "the resource is served", "bob", "/clusters/{b}" + widgetsPath, "", 200, 0, `"name":"one"`},
		row{"5.2", "the virtual workspace is not served", "alice", exportVirtualWorkspacePath + "*" + widgetsPath, "", 404, 0, ""},
		row{"4.5", "the endpoint slice is deleted", "alice", "/clusters/{a}" + endpointSlices + "/widgets", "", 404, 0, ""},
		row{"4.3", "create the export again", "alice", "POST /clusters/{a}" + exports, `{"metadata":{"name":"widgets"},"spec":{"resources":[{"name":"widgets","group":"example.io","schema":"v1.widgets.example.io"}]}}`, 201, 0, ""},
		row{"4.3", "the secret restores the identity", "alice", export, "", 200, 0, `"identityHash":"{identity}"`},
		row{"4.8", "the binding resolves the export", "bob", binding, "", 200, 0, `{"type":"APIExportValid","status":"True",`},
		row{"4.2", "the annotation of the deleted export is removed", "bob", binding, "", 200, 0, `"annotations":{"kcp.io/cluster":"{b}","kcp.io/path":"root:b"}`},
		row{"4.8", "a resource that is no longer exported is served", "bob", "/clusters/{b}/apis/example.io/v1/gears", "", 200, 0, "GearList"},
		row{"5.2", "the provider lists the objects", "alice", exportVirtualWorkspacePath + "*" + widgetsPath, "", 200, 0, `"name":"one"`},
	)
}

func (e *env) testUnbind(t *testing.T) {
	t.Helper()
	const binding, one = "/clusters/{b}" + bindings + "/w", "/clusters/{b}/apis/example.io/v1/namespaces/default/widgets/one"
	e.waitForRows(t,
		row{"4.9", "add a finalizer to an object", "bob", "PATCH " + one, `{"metadata":{"finalizers":["example.com/keep"]}}`, 200, 0, ""},
		row{"4.9", "delete the binding", "bob", "DELETE " + binding, "", 200, 0, ""},
		row{"4.9", "the resource has no write verbs", "bob", "/clusters/{b}/apis/example.io/v1", "", 200, 0, `"verbs":["delete","deletecollection","get","list","watch"]`},
		row{"4.9", "the object is being deleted", "bob", one, "", 200, 0, `"deletionTimestamp":`},
		row{"4.9", "the binding reports remaining objects", "bob", binding, "", 200, 0, `{"type":"BindingResourceDeleteSuccess","status":"False",`},
		row{"7.4", "removal of the binding finalizer is Forbidden", "bob", "PATCH " + binding, `{"metadata":{"finalizers":null}}`, 403, 0, "apis.kcp.io/apibinding-finalizer"},
		row{"4.9", "remove the finalizer of the object", "bob", "PATCH " + one, `{"metadata":{"finalizers":null}}`, 200, 0, ""},
		row{"4.9", "the binding is deleted", "bob", binding, "", http.StatusNotFound, 0, ""},
		row{"4.9", "the API is not served", "bob", "/clusters/{b}" + widgetsPath, "", http.StatusNotFound, 0, ""},
		row{"4.5", "the URL of the shard is removed", "alice", "/clusters/{a}" + endpointSlices + "/widgets", "", 200, 0, `"status":{"conditions":[{"type":"APIExportValid"`},
		row{"5.1", "the provider lists no objects", "alice", exportVirtualWorkspacePath + "*" + widgetsPath, "", 200, 0, `"items":[]`},
	)
}
