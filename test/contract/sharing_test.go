package contract

import (
	"net/http"
	"strings"
	"testing"
)

// exportViewPath is the virtual workspace in which alice sees the consumers of her export.
const exportViewPath = "/services/apiexport/{a}/widgets/clusters/"

// TestAPISharing covers the flows of an exported API (12.2) and of claims (12.4), then a binding whose export is deleted
// and created again (4.8), and the deletion of a binding (4.9).
func TestAPISharing(t *testing.T) {
	s := newEnv(t)
	s.exportAPI(t)
	s.testPublish(t)
	s.testAdmissionPolicies(t)
	s.testClaims(t)
	s.testExportRecreation(t)
	s.testUnbind(t)
}

func (s *env) waitForRows(t *testing.T, rows ...row) {
	t.Helper()
	for _, row := range rows {
		s.waitForRow(t, row)
	}
}

func (s *env) testPublish(t *testing.T) {
	t.Helper()
	const export, slice, binding = "/clusters/{a}" + exports + "/widgets", "/clusters/{a}" + endpointSlices + "/widgets", "/clusters/{b}" + bindings + "/w"
	const widget = `{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"name":"one"},"spec":{}}`
	s.waitForRows(t,
		row{"4.3", "an export gets a secret", "alice", export, "", 200, 0, `"identity":{"secretRef":{"name":"widgets","namespace":"kcp-system"}}`},
		row{"4.3", "whose hash is its identity", "alice", export, "", 200, 0, `"conditions":[{"type":"IdentityValid","status":"True",`},
		row{"4.5", "it gets a slice", "alice", slice, "", 200, 0, `"ownerReferences":[{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","name":"widgets",`},
		row{"4.5", "which finds it", "alice", slice, "", 200, 0, `{"type":"APIExportValid","status":"True",`},
		row{"4.5", "the address of the consumer's shard is in it", "alice", slice, "", 200, 0, `/services/apiexport/{a}/widgets"}]`},
		row{"4.7", "the binding knows the export", "bob", binding, "", 200, 0, `"apiExportClusterName":"{a}"`},
		row{"4.7", "and what it binds", "bob", binding, "", 200, 0, `"identityHash":"{identity}"},"storageVersions":["v1"]}]`},
		row{"4.8", "it is ready", "bob", binding, "", 200, 0, `"conditions":[{"type":"Ready","status":"True",`},
		row{"4.8", "since it is complete", "bob", binding, "", 200, 0, `{"type":"InitialBindingCompleted","status":"True",`},
		row{"4.8", "and as the export is", "bob", binding, "", 200, 0, `{"type":"BindingUpToDate","status":"True",`},
		row{"4.7", "its lock is taken", "bob", "/clusters/{b}" + ownClusterPath, "", 200, 0, `\"widgets.example.io\":{\"n\":\"w\"}`},
		row{"12.2", "the consumer has the API", "bob", "/clusters/{b}/apis/example.io/v1", "", 200, 0, `"name":"widgets"`},
		row{"12.2", "and makes an object", "bob", "POST /clusters/{b}/apis/example.io/v1/namespaces/default/widgets", widget, 201, 0, `"kcp.io/cluster":"{b}"`},
		row{"12.2", "that the provider sees", "alice", exportViewPath + "*" + widgetsPath, "", 200, 0, `"kcp.io/cluster":"{b}"`},
		row{"12.2", "roles of those who bind are for all shards", "alice", "/clusters/{a}/apis/rbac.authorization.k8s.io/v1/clusterroles/bind", "", 200, 0, `"internal.kcp.io/replicate":"apis.kcp.io"`},
		row{"4.2", "annotations of an export", "alice", "PATCH " + export, `{"metadata":{"annotations":{"extra.apis.kcp.io/a":"b"}}}`, 200, 0, ""},
		row{"4.2", "are those of its bindings", "bob", binding, "", 200, 0, `"extra.apis.kcp.io/a":"b"`},
		row{"4.2", "a resource that is not described", "alice", "PATCH " + export, `{"spec":{"resources":[{"name":"gears","group":"example.io","schema":"v1.gears.example.io"},{"name":"widgets","group":"example.io","schema":"v1.widgets.example.io"}]}}`, 200, 0, ""},
		row{"4.8", "cannot be bound", "bob", binding, "", 200, 0, `{"type":"APIExportValid","status":"False","severity":"Error",`},
		row{"4.8", "until it is", "alice", "POST /clusters/{a}" + schemas, `{"metadata":{"name":"v1.gears.example.io"},"spec":` + strings.NewReplacer("widget", "gear", "Widget", "Gear").Replace(widgetSpec) + `}`, 201, 0, ""},
		row{"4.8", "and then is", "bob", "/clusters/{b}/apis/example.io/v1/gears", "", 200, 0, "GearList"},
		row{"4.7", "another binding of the same", "bob", "POST /clusters/{b}" + bindings, `{"metadata":{"name":"again"},"spec":{"reference":{"export":{"path":"{a}","name":"widgets"}}}}`, 201, 0, ""},
		row{"4.7", "finds it taken", "bob", "/clusters/{b}" + bindings + "/again", "", 200, 0, `"reason":"NamingConflicts"`},
		row{"4.7", "and goes as it came", "bob", "DELETE /clusters/{b}" + bindings + "/again", "", 200, 0, ""},
	)
}

// testAdmissionPolicies has provider and consumer deny a name by policy: only the provider's policies apply to the exported resource
// (7.5).
func (s *env) testAdmissionPolicies(t *testing.T) {
	t.Helper()
	const admission = "/apis/admissionregistration.k8s.io/v1/"
	for cluster, owner := range map[string]string{"{a}": "alice", "{b}": "bob"} {
		s.waitForRows(t,
			row{"7.5", owner + " has a rule", owner, "POST /clusters/" + cluster + admission + "validatingadmissionpolicies", `{"metadata":{"name":"rule"},"spec":{"matchConstraints":{"resourceRules":
				[{"apiGroups":["example.io"],"apiVersions":["*"],"operations":["CREATE"],"resources":["widgets"]}]},"validations":[{"expression":"object.metadata.name != 'not-of-` + owner + `'","message":"` + owner + ` says no"}]}}`, 201, 0, ""},
			row{"7.5", "and puts it in force", owner, "POST /clusters/" + cluster + admission + "validatingadmissionpolicybindings", `{"metadata":{"name":"rule"},"spec":{"policyName":"rule","validationActions":["Deny"]}}`, 201, 0, ""})
	}
	create := func(owner string) string {
		return `{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"name":"not-of-` + owner + `"},"spec":{}}`
	}
	const path = "POST /clusters/{b}/apis/example.io/v1/namespaces/default/widgets" + dryRun
	s.waitForRows(t,
		row{"7.5", "the provider's rule holds", "bob", path, create("alice"), 422, 0, "alice says no"},
		row{"7.5", "for itself, too", "alice", "POST " + exportViewPath + "{b}/apis/example.io/v1/namespaces/default/widgets" + dryRun, create("alice"), 422, 0, "alice says no"},
		row{"7.5", "the consumer's does not", "bob", path, create("bob"), 201, 0, ""})
}

func (s *env) testClaims(t *testing.T) {
	t.Helper()
	const binding, maps = "/clusters/{b}" + bindings + "/w", exportViewPath + "*/api/v1/configmaps"
	claim := func(more string) string {
		return `{"spec":{"permissionClaims":[{"resource":"configmaps","verbs":["get","list","watch","create"]` + more + `}]}}`
	}
	s.waitForRows(t,
		row{"12.4", "the provider claims", "alice", "PATCH /clusters/{a}" + exports + "/widgets", claim(""), 200, 0, `"group":"","resource":"configmaps"`},
		row{"12.4", "the consumer sees it", "bob", binding, "", 200, 0, `"exportPermissionClaims":[{"group":"","resource":"configmaps","verbs":["get","list","watch","create"],"identityHash":""}]`},
		row{"12.4", "nothing is shown yet", "alice", exportViewPath + "{b}/api/v1/configmaps", "", 403, 0, "access denied"},
		row{"12.4", "an object of theirs", "bob", "POST /clusters/{b}" + configMaps, `{"metadata":{"name":"shown","labels":{"show":"it"}}}`, 201, 0, ""},
		row{"12.4", "and one of another kind", "bob", "POST /clusters/{b}" + configMaps, `{"metadata":{"name":"private"}}`, 201, 0, ""},
		row{"12.4", "the consumer accepts, in part", "bob", "PATCH " + binding, claim(`,"state":"Accepted","selector":{"matchLabels":{"show":"it"}}`), 200, 0, ""},
		row{"12.4", "which is applied", "bob", binding, "", 200, 0, `"appliedPermissionClaims":[{"group":"","resource":"configmaps","verbs":["get","list","watch","create"],"identityHash":"","selector":{"matchLabels":{"show":"it"}}}]`},
		row{"4.8", "and said", "bob", binding, "", 200, 0, `{"type":"PermissionClaimsApplied","status":"True",`},
		row{"4.10", "the object has a label", "bob", "/clusters/{b}" + configMaps + "/shown", "", 200, 0, `"claimed.internal.apis.kcp.io/`},
		row{"12.4", "and is shown", "alice", maps, "", 200, 0, `"name":"shown"`},
		row{"12.4", "the other is not", "alice", exportViewPath + "{b}" + configMaps + "/private", "", 404, 0, ""},
		row{"5.2", "what the provider makes is like it", "alice", "POST " + exportViewPath + "{b}" + configMaps, `{"metadata":{"name":"made"}}`, 201, 0, `"show":"it"`},
		row{"5.2", "or is not made", "alice", "POST " + exportViewPath + "{b}" + configMaps, `{"metadata":{"name":"bad","labels":{"show":"other"}}}`, 403, 0, "protected label show must have value it"},
		row{"4.10", "a verb that is not claimed", "alice", "DELETE " + exportViewPath + "{b}" + configMaps + "/shown", "", 403, 0, "access denied"},
		row{"5.2", "nor is it made another's", "alice", "PATCH " + exportViewPath + "{b}" + configMaps + "/shown", `{"metadata":{"labels":{"show":"other"}}}`, 403, 0, ""},
		row{"4.10", "a review of rights cannot be had unclaimed", "alice", "POST " + exportViewPath + "{b}/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"spec":{"user":"bob","resourceAttributes":{"verb":"get","resource":"configmaps"}}}`, 403, 0, "access denied"},
		row{"4.10", "it can be claimed", "alice", "PATCH /clusters/{a}" + exports + "/widgets", `{"spec":{"permissionClaims":[{"group":"authorization.k8s.io","resource":"subjectaccessreviews","verbs":["create"]},{"resource":"configmaps","verbs":["get","list","watch","create"]}]}}`, 200, 0, ""},
		row{"4.10", "and accepted", "bob", "PATCH " + binding, `{"spec":{"permissionClaims":[{"group":"authorization.k8s.io","resource":"subjectaccessreviews","verbs":["create"],"state":"Accepted","selector":{"matchAll":true}}]}}`, 200, 0, ""},
		row{"4.10", "then it is of the consumer's rules", "alice", "POST " + exportViewPath + "{b}/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"spec":{"user":"bob","resourceAttributes":{"verb":"get","resource":"configmaps"}}}`, 201, 0, `"allowed":true`},
		row{"4.10", "and the consumer's own stay as they are", "bob", "POST /clusters/{b}/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"spec":{"user":"bob","resourceAttributes":{"verb":"get","resource":"configmaps"}}}`, 201, 0, `"allowed":true`},
		row{"4.8", "a claim that the export does not have", "bob", "PATCH " + binding, `{"spec":{"permissionClaims":[{"resource":"secrets","verbs":["get"],"state":"Accepted","selector":{"matchAll":true}}]}}`, 200, 0, ""},
		row{"4.8", "is said", "bob", binding, "", 200, 0, `{"type":"PermissionClaimsValid","status":"False","severity":"Error",`},
		row{"12.4", "the consumer rejects", "bob", "PATCH " + binding, claim(`,"state":"Rejected","selector":{"matchAll":true}`), 200, 0, ""},
		row{"12.4", "and nothing is shown", "alice", maps, "", 200, 0, `"items":[]`},
	)
}

func (s *env) testExportRecreation(t *testing.T) {
	t.Helper()
	const export, binding = "/clusters/{a}" + exports + "/widgets", "/clusters/{b}" + bindings + "/w"
	s.waitForRows(t,
		row{"4.8", "an export goes", "alice", "DELETE " + export, "", 200, 0, ""},
		row{"4.8", "the binding says so", "bob", binding, "", 200, 0, `"reason":"APIExportNotFound"`},
		row{"4.8", "and stays bound", "bob", binding, "", 200, 0, `"phase":"Bound"`},
		row{"4.8", "and serves", "bob", "/clusters/{b}" + widgetsPath, "", 200, 0, `"name":"one"`},
		row{"5.2", "the provider sees nothing", "alice", exportViewPath + "*" + widgetsPath, "", 404, 0, ""},
		row{"4.5", "nor a slice", "alice", "/clusters/{a}" + endpointSlices + "/widgets", "", 404, 0, ""},
		row{"4.3", "it comes again", "alice", "POST /clusters/{a}" + exports, `{"metadata":{"name":"widgets"},"spec":{"resources":[{"name":"widgets","group":"example.io","schema":"v1.widgets.example.io"}]}}`, 201, 0, ""},
		row{"4.3", "by its secret it is the same", "alice", export, "", 200, 0, `"identityHash":"{identity}"`},
		row{"4.8", "the binding finds it", "bob", binding, "", 200, 0, `{"type":"APIExportValid","status":"True",`},
		row{"4.2", "without what it had", "bob", binding, "", 200, 0, `"annotations":{"kcp.io/cluster":"{b}","kcp.io/path":"root:b"}`},
		row{"4.8", "and what it does not export any more stays", "bob", "/clusters/{b}/apis/example.io/v1/gears", "", 200, 0, "GearList"},
		row{"5.2", "the provider sees the objects", "alice", exportViewPath + "*" + widgetsPath, "", 200, 0, `"name":"one"`},
	)
}

func (s *env) testUnbind(t *testing.T) {
	t.Helper()
	const binding, one = "/clusters/{b}" + bindings + "/w", "/clusters/{b}/apis/example.io/v1/namespaces/default/widgets/one"
	s.waitForRows(t,
		row{"4.9", "an object that somebody holds", "bob", "PATCH " + one, `{"metadata":{"finalizers":["example.com/keep"]}}`, 200, 0, ""},
		row{"4.9", "a binding goes", "bob", "DELETE " + binding, "", 200, 0, ""},
		row{"4.9", "its resources cannot be written", "bob", "/clusters/{b}/apis/example.io/v1", "", 200, 0, `"verbs":["delete","deletecollection","get","list","watch"]`},
		row{"4.9", "its objects go", "bob", one, "", 200, 0, `"deletionTimestamp":`},
		row{"4.9", "but for those that are held", "bob", binding, "", 200, 0, `{"type":"BindingResourceDeleteSuccess","status":"False",`},
		row{"7.4", "its finalizer is the shard's", "bob", "PATCH " + binding, `{"metadata":{"finalizers":null}}`, 403, 0, "apis.kcp.io/apibinding-finalizer"},
		row{"4.9", "until they are let go", "bob", "PATCH " + one, `{"metadata":{"finalizers":null}}`, 200, 0, ""},
		row{"4.9", "then it is gone", "bob", binding, "", http.StatusNotFound, 0, ""},
		row{"4.9", "the API too", "bob", "/clusters/{b}" + widgetsPath, "", http.StatusNotFound, 0, ""},
		row{"4.5", "and the address", "alice", "/clusters/{a}" + endpointSlices + "/widgets", "", 200, 0, `"status":{"conditions":[{"type":"APIExportValid"`},
		row{"5.1", "what the provider sees is empty", "alice", exportViewPath + "*" + widgetsPath, "", 200, 0, `"items":[]`},
	)
}
