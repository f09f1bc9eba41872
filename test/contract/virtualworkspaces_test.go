package contract

// widgetsPath is the path of the exported resource, below a logical cluster.
const widgetsPath = "/apis/example.io/v1/widgets"

// virtualWorkspaceRows covers the virtual workspaces that show a provider its consumers (5.1, 5.2), and a consumer the
// exports it may bind (5.3).
func virtualWorkspaceRows() []row {
	const (
		all, one               = "/services/apiexport/{a}/widgets/clusters/*", "/services/apiexport/{a}/widgets/clusters/{b}"
		some                   = "/apis/example.io/v1/namespaces/default/widgets"
		schemaVirtualWorkspace = "/services/apiresourceschema/{b}"
	)
	return []row{
		{"5.2", "list of all consumers", "alice", all + widgetsPath, "", 200, 200, "WidgetList"},
		{"5.2", "list of one consumer", "alice", one + widgetsPath, "", 200, 200, "WidgetList"},
		{"5.2", "list of all consumers is Forbidden for consumers", "bob", all + widgetsPath, "", 403, 403, "access denied"},
		{"5.2", "list of its own objects is Forbidden for a consumer", "bob", one + widgetsPath, "", 403, 403, "access denied"},
		{"5.2", "discovery is Forbidden for other users", "mallory", all + "/apis", "", 403, 403, ""},
		{"5.2", "cluster without a binding is Forbidden", "alice", "/services/apiexport/{a}/widgets/clusters/{a}" + widgetsPath, "", 403, 403, "access denied"},
		{"5.2", "unknown cluster is Forbidden", "alice", "/services/apiexport/{a}/widgets/clusters/nope" + widgetsPath, "", 403, 403, "access denied"},
		{"5.2", "unknown export", "alice", "/services/apiexport/{a}/nope/clusters/*" + widgetsPath, "", 404, 404, ""},
		{"5.2", "list without credentials", "unauthenticated", all + widgetsPath, "", 403, 401, ""},
		{"5.1", "consumer by path is Forbidden", "alice", "/services/apiexport/{a}/widgets/clusters/root:b" + widgetsPath, "", 403, 403, "Path not resolved to a valid virtual workspace"},
		{"5.1", "provider by path is Forbidden", "alice", "/services/apiexport/root:a/widgets/clusters/*" + widgetsPath, "", 403, 403, "Path not resolved to a valid virtual workspace"},
		{"5.1", "no consumer is Forbidden", "alice", "/services/apiexport/{a}/widgets" + widgetsPath, "", 403, 403, "Path not resolved to a valid virtual workspace"},
		{"5.1", "list of a namespace of all consumers", "alice", all + some, "", 400, 400, ""},
		{"5.1", "get in all consumers", "alice", all + some + "/x", "", 400, 400, ""},
		{"5.1", "create in all consumers", "alice", "POST " + all + some, `{}`, 400, 400, ""},
		{"5.1", "get of a missing object", "alice", one + some + "/x", "", 404, 404, `widgets.example.io \"x\" not found`},
		{"5.1", "patch of a missing object", "alice", "PATCH " + one + some + "/x", `{}`, 404, 404, ""},
		{"5.1", "unknown subresource", "alice", one + some + "/x/scale", "", 404, 404, ""},
		{"5.1", "validation of a created object", "alice", "POST " + one + some, `{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"name":"No_t"}}`, 422, 422, ""},
		{"5.1", "group outside of the API set", "alice", all + "/apis/nope.io/v1", "", 404, 404, ""},
		{"5.1", "version outside of the API set", "alice", all + "/apis/example.io/v2", "", 404, 404, ""},
		{"5.1", "group discovery of all consumers", "alice", all + "/apis", "", 200, 200, `"name":"example.io"`},
		{"5.1", "group discovery of one consumer", "alice", one + "/apis", "", 200, 200, `"name":"example.io"`},
		{"5.1", "resource discovery", "alice", all + "/apis/example.io/v1", "", 200, 200, `"kind":"Widget"`},
		{"5.1", "OpenAPI", "alice", all + "/openapi/v3", "", 200, 200, "apis/example.io/v1"},
		{"5.1", "OpenAPI of a version", "alice", all + "/openapi/v3/apis/example.io/v1", "", 200, 200, "widgets"},
		{"5.2", "unclaimed API of all consumers", "alice", all + "/api/v1/secrets", "", 404, 404, ""},
		{"5.2", "unclaimed API of one consumer is Forbidden", "alice", one + "/api/v1/secrets", "", 403, 403, "access denied"},
		{"5.2", "bindings to the export", "alice", one + bindings, "", 200, 200, `"name":"w"`},
		{"5.2", "get of another binding", "alice", one + bindings + "/nope", "", 404, 404, ""},
		{"5.2", "v1alpha1: bindings to the export", "alice", all + oldBindings, "", 200, 200, `"name":"w"`},
		{"5.2", "verbs of bindings", "alice", all + "/apis/apis.kcp.io/v1alpha2", "", 200, 200, `"verbs":["get","list","watch"]`},
		{"5.2", "patch of a binding is Forbidden", "alice", "PATCH " + one + bindings + "/w", `{"metadata":{"labels":{"a":"b"}}}`, 403, 403, "access denied"},
		{"5.2", "patch of a binding, system:masters", "masters", "PATCH " + one + bindings + "/w", `{"metadata":{"labels":{"a":"b"}}}`, 405, 403, ""},

		{"5.3", "list of bound schemas", "bob", schemaVirtualWorkspace + schemas, "", 200, 200, "v1.widgets.example.io"},
		{"5.3", "cluster annotation of a schema", "bob", schemaVirtualWorkspace + schemas + "/v1.widgets.example.io", "", 200, 200, `"kcp.io/cluster":"{a}"`},
		{"5.3", "schemas by logical cluster name", "bob", schemaVirtualWorkspace + "/clusters/{b}" + schemas, "", 200, 200, ""},
		{"5.3", "schemas by wildcard", "bob", schemaVirtualWorkspace + "/clusters/*" + schemas, "", 200, 200, ""},
		{"5.3", "schemas of another consumer are Forbidden", "bob", schemaVirtualWorkspace + "/clusters/{a}" + schemas, "", 403, 403, ""},
		{"5.3", "schemas of all consumers are Forbidden", "bob", "/services/apiresourceschema/*" + schemas, "", 403, 403, ""},
		{"5.3", "get of a schema that is not bound", "bob", schemaVirtualWorkspace + schemas + "/nope", "", 404, 404, ""},
		{"5.3", "delete of a schema is Forbidden", "bob", "DELETE " + schemaVirtualWorkspace + schemas + "/v1.widgets.example.io", "", 403, 403, ""},
		{"5.3", "list without access to the bindings is Forbidden", "alice", schemaVirtualWorkspace + schemas, "", 403, 403, ""},
		{"5.3", "cluster without bindings", "masters", "/services/apiresourceschema/system:admin" + schemas, "", 404, 403, ""},
		{"5.3", "verbs of schemas", "bob", schemaVirtualWorkspace + "/apis/apis.kcp.io/v1alpha1", "", 200, 200, `"verbs":["get","list","watch"]`},
	}
}

// identityRows covers requests for the objects of one identity (1.1, 1.5).
func identityRows() []row {
	const all, one = "/clusters/*" + widgetsPath, "/clusters/{b}" + widgetsPath
	return []row{
		{"1.5", "bound resource of all clusters", "masters", all + ":{identity}", "", 200, 403, "WidgetList"},
		{"1.5", "bound resource without identity", "masters", all, "", 404, 403, ""},
		{"1.5", "bound resource with another identity", "masters", all + ":{tenancy}", "", 404, 403, ""},
		{"1.5", "bound resource of all clusters is Forbidden except for system:masters", "bob", all + ":{identity}", "", 403, 403, "access denied"},
		{"1.5", "delete in all clusters", "masters", "DELETE " + all + ":{identity}", "", 405, 403, "logical cluster"},
		{"1.5", "workspaces of all clusters", "masters", "/clusters/*" + workspaces + ":{tenancy}", "", 200, 403, "WorkspaceList"},
		{"1.5", "workspaces with another identity", "masters", "/clusters/*" + workspaces + ":{identity}", "", 404, 403, ""},
		{"1.5", "workspaces without identity", "masters", "/clusters/*" + workspaces, "", 404, 403, "identity"},
		{"1.5", "bindings of all clusters", "masters", "/clusters/*" + bindings, "", 200, 403, "APIBindingList"},
		{"1.5", "v1alpha1: exports of all clusters", "masters", "/clusters/*" + oldExports, "", 200, 403, "APIExportList"},
		{"1.1", "bound resource by identity", "masters", one + ":{identity}", "", 200, 403, "WidgetList"},
		{"1.1", "bound resource by another identity", "masters", one + ":{tenancy}", "", 404, 403, ""},
		{"1.1", "identity in a cluster without a binding", "masters", "/clusters/{a}" + widgetsPath + ":{identity}", "", 404, 403, ""},
	}
}
