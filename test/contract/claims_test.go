package contract

import "strings"

// claimableResources lists, by group, the resources that an export may claim without an identity hash (5.2).
var claimableResources = map[string]string{
	"":                             "namespaces configmaps events resourcequotas secrets serviceaccounts",
	"rbac.authorization.k8s.io":    "clusterroles clusterrolebindings roles rolebindings",
	"certificates.k8s.io":          "certificatesigningrequests",
	"coordination.k8s.io":          "leases",
	"events.k8s.io":                "events",
	"admissionregistration.k8s.io": "mutatingwebhookconfigurations validatingwebhookconfigurations mutatingadmissionpolicies mutatingadmissionpolicybindings validatingadmissionpolicies validatingadmissionpolicybindings",
	"apiextensions.k8s.io":         "customresourcedefinitions",
	"core.kcp.io":                  "logicalclusters",
	"authorization.k8s.io":         "subjectaccessreviews localsubjectaccessreviews",
	"authentication.k8s.io":        "tokenreviews",
	"apis.kcp.io":                  "apibindings apiexports apiresourceschemas",
}

// claimRows covers the validation of claims and storage in both versions of exports and bindings (4.2, 4.7).
func claimRows() []row {
	var rows []row
	create, createOld := "POST /clusters/{b}"+exports+dryRun, "POST /clusters/{b}"+oldExports+dryRun
	bind := "POST /clusters/{b}" + bindings + dryRun
	claim := func(claim string) string {
		return `{"metadata":{"name":"e"},"spec":{"permissionClaims":[` + claim + `]}}`
	}
	withAnnotation := func(annotation, value string) string {
		return `{"metadata":{"name":"e","annotations":{"apis.v1alpha2.kcp.io/` + annotation + `":"` + strings.ReplaceAll(value, `"`, `\"`) + `"}},"spec":{"permissionClaims":[{"resource":"configmaps","all":true}]}}`
	}
	withStorage := func(storage string) string {
		return `{"metadata":{"name":"e"},"spec":{"resources":[{"name":"x","group":"example.io","schema":"v1.x.example.io","storage":{"virtual":` + storage + `}}]}}`
	}
	withSubresource := func(name, storage string) string {
		_, subresource, _ := strings.Cut(name, "/")
		return `{"metadata":{"name":"e"},"spec":{"resources":[{"name":"widgets","group":"example.io","schema":"v1.widgets.example.io","storage":{"crd":{}}},` +
			`{"name":"` + name + `","group":"example.io","schema":"v1.` + subresource + `.example.io","storage":` + storage + `}]}}`
	}
	const backend = `{"virtual":{"reference":{"apiGroup":"example.io","kind":"Backend","name":"x"}}}`
	bindingWithClaim := func(claim string) string {
		return `{"metadata":{"name":"e"},"spec":{"reference":{"export":{"path":"root:a","name":"widgets"}},"permissionClaims":[` + claim + `]}}`
	}
	for group, resources := range claimableResources {
		for _, resource := range strings.Fields(resources) {
			rows = append(rows, row{"5.2", "claim of " + resource + " in group " + group, "bob", create, claim(`{"group":"` + group + `","resource":"` + resource + `","verbs":["*"]}`), 201, 201, ""})
		}
	}
	return append(rows, []row{
		{"4.10", "claim of selfsubjectaccessreviews is Forbidden", "bob", create, claim(`{"group":"authorization.k8s.io","resource":"selfsubjectaccessreviews","verbs":["*"]}`), 403, 403, "identityHash"},
		{"4.2", "claim of workspaces without identity is Forbidden", "bob", create, claim(`{"group":"tenancy.kcp.io","resource":"workspaces","verbs":["*"]}`), 403, 403, "identityHash"},
		{"4.2", "claim of workspaces with identity", "bob", create, claim(`{"group":"tenancy.kcp.io","resource":"workspaces","verbs":["*"],"identityHash":"{tenancy}"}`), 201, 201, ""},
		{"4.2", "invalid group", "bob", create, claim(`{"group":"Example.io","resource":"widgets","verbs":["*"],"identityHash":"x"}`), 422, 422, "group"},
		{"4.2", "invalid resource", "bob", create, claim(`{"resource":"Secrets","verbs":["*"],"identityHash":"x"}`), 422, 422, "resource"},
		{"4.2", "maximalPermissionPolicy without local", "bob", create, `{"metadata":{"name":"e"},"spec":{"maximalPermissionPolicy":{}}}`, 422, 422, "maximalPermissionPolicy"},
		{"4.2", "virtual storage", "bob", create, withStorage(`{"identityHash":"a","reference":{"apiGroup":"cache.kcp.io","kind":"ClusterCachedResourceEndpointSlice","name":"x"}}`), 201, 201, ""},
		{"4.2", "virtual storage without a kind", "bob", create, withStorage(`{"identityHash":"a","reference":{"name":"x"}}`), 422, 422, "kind"},
		{"4.2", "virtual storage without an identity", "bob", create, withStorage(`{"reference":{"kind":"K","name":"x"}}`), 201, 201, ""},
		{"K2.20", "claim of a subresource", "bob", create, claim(`{"resource":"serviceaccounts/token","verbs":["create"]}`), 201, 201, `"resource":"serviceaccounts/token"`},
		{"K4.60", "custom subresource", "bob", create, withSubresource("widgets/console", backend), 201, 201, `"name":"widgets/console"`},
		{"K4.60", "custom subresource status", "bob", create, withSubresource("widgets/status", backend), 422, 422, "spec.resources[1].name"},
		{"K4.60", "custom subresource scale", "bob", create, withSubresource("widgets/scale", backend), 422, 422, "spec.resources[1].name"},
		{"K4.60", "custom subresource with stored objects", "bob", create, withSubresource("widgets/console", `{"crd":{}}`), 422, 422, "spec.resources[1].storage.crd"},
		{"K4.60", "custom subresource without its resource", "bob", create, withSubresource("gadgets/console", backend), 422, 422, "gadgets.example.io"},
		{"K4.60", "custom subresource with an invalid name", "bob", create, withSubresource("widgets/a/b", backend), 422, 422, "spec.resources[1].name"},
		{"K4.60", "custom subresource with the schema of another", "bob", create, strings.Replace(withSubresource("widgets/console", backend), "v1.console", "v1.other", 1), 403, 403, "must end in .console.example.io"},
		{"K4.63", "claim of a custom subresource", "bob", create, claim(`{"group":"example.io","resource":"widgets/console","verbs":["create"],"identityHash":"x"}`), 201, 201, `"resource":"widgets/console"`},
		{"K4.63", "claim of a custom subresource without identity", "bob", create, claim(`{"group":"example.io","resource":"widgets/console","verbs":["create"]}`), 403, 403, "identityHash is required"},
		{"4.2", "unknown field with strict validation", "bob", create + "&fieldValidation=Strict", `{"metadata":{"name":"e"},"spec":{"nope":1}}`, 400, 400, "spec.nope"},

		{"4.2", "v1alpha1: schema of the core group", "bob", createOld, `{"metadata":{"name":"e"},"spec":{"latestResourceSchemas":["v1.x.core"]}}`, 201, 201, `"latestResourceSchemas":["v1.x.core"]`},
		{"4.2", "v1alpha1: invalid schema name", "bob", createOld, `{"metadata":{"name":"e"},"spec":{"latestResourceSchemas":["a.b"]}}`, 400, 400, "a.b"},
		{"4.2", "v1alpha1: resourceSelector", "bob", createOld, claim(`{"resource":"configmaps","resourceSelector":[{"name":"x","namespace":"y"}]}`), 201, 201, `"resourceSelector":[{"name":"x","namespace":"y"}]`},
		{"4.2", "v1alpha1: all with resourceSelector", "bob", createOld, claim(`{"resource":"configmaps","all":true,"resourceSelector":[{"name":"x"}]}`), 422, 422, "resourceSelector"},
		{"4.2", "v1alpha1: empty resourceSelector", "bob", createOld, claim(`{"resource":"configmaps","resourceSelector":[{}]}`), 422, 422, "resourceSelector"},
		{"4.2", "v1alpha1: invalid name in resourceSelector", "bob", createOld, claim(`{"resource":"configmaps","resourceSelector":[{"name":"_X"}]}`), 422, 422, "name"},
		{"4.2", "v1alpha1: permission claims annotation", "bob", createOld, withAnnotation("permission-claims", `[{"group":"","resource":"configmaps","verbs":["get"]}]`), 201, 201, `"all":true`},
		{"4.2", "v1alpha1: duplicate in the permission claims annotation is Forbidden", "bob", createOld, withAnnotation("permission-claims", `[{"resource":"configmaps","verbs":["get"]},{"resource":"configmaps","verbs":["list"]}]`), 403, 403, "twice"},
		{"4.2", "v1alpha1: annotation of an unclaimed resource is Forbidden", "bob", createOld, withAnnotation("permission-claims", `[{"resource":"secrets","verbs":["get"]}]`), 403, 403, "secrets"},
		{"4.2", "v1alpha1: invalid resource schemas annotation is Forbidden", "bob", createOld, withAnnotation("resource-schemas", `nope`), 403, 403, "cannot be used"},

		{"4.7", "claim without a state", "bob", bind, bindingWithClaim(`{"resource":"secrets","verbs":["get"],"selector":{"matchAll":true}}`), 422, 422, "state"},
		{"4.7", "claim without verbs", "bob", bind, bindingWithClaim(`{"resource":"secrets","state":"Accepted","selector":{"matchAll":true}}`), 422, 422, "verbs"},
		{"4.7", "claim without a selector is Forbidden", "bob", bind, bindingWithClaim(`{"resource":"secrets","verbs":["get"],"state":"Accepted"}`), 403, 403, "selector"},
		{"4.7", "duplicate claim", "bob", bind, bindingWithClaim(`{"resource":"secrets","verbs":["get"],"state":"Accepted","selector":{"matchAll":true}},{"resource":"secrets","verbs":["list"],"state":"Accepted","selector":{"matchAll":true}}`), 422, 422, "Duplicate"},
		{"4.7", "two claims with different identities", "bob", bind, bindingWithClaim(`{"resource":"x1","identityHash":"a","verbs":["get"],"state":"Accepted","selector":{"matchAll":true}},{"resource":"x1","identityHash":"b","verbs":["get"],"state":"Accepted","selector":{"matchAll":true}}`), 201, 201, ""},
		{"4.7", "reference without an export name", "bob", bind, `{"metadata":{"name":"e"},"spec":{"reference":{"export":{"path":"root:a"}}}}`, 422, 422, "name"},

		{"4.5", "export of an endpoint slice is immutable", "alice", "PATCH /clusters/{a}" + endpointSlices + "/widgets" + dryRun, `{"spec":{"export":{"name":"hidden"}}}`, 422, 422, "must not be changed"},
		{"4.5", "partition of an endpoint slice can be changed", "alice", "PATCH /clusters/{a}" + endpointSlices + "/widgets" + dryRun, `{"spec":{"partition":"x"}}`, 200, 200, `"partition":"x"`},
		{"4.13", "namespaced resource cannot be cached", "bob", "POST /clusters/{b}/apis/cache.kcp.io/v1alpha1/clustercachedresources" + dryRun, `{"metadata":{"name":"x"},"spec":{"version":"v1","resource":"configmaps"}}`, 403, 403, "namespaced"},
		{"4.13", "invalid group of a cached resource", "bob", "POST /clusters/{b}/apis/cache.kcp.io/v1alpha1/clustercachedresources" + dryRun, `{"metadata":{"name":"x"},"spec":{"group":"No","version":"v1","resource":"things"}}`, 422, 422, "group"},
		{"4.13", "path annotation of a cached resource", "bob", "POST /clusters/{b}/apis/cache.kcp.io/v1alpha1/clustercachedresources" + dryRun, `{"metadata":{"name":"x"},"spec":{"group":"example.com","version":"v1","resource":"things"}}`, 201, 201, `"kcp.io/path":"root:b"`},
	}...)
}
