package contract

// widgetsPath is the path of the exported resource, below a logical cluster.
const widgetsPath = "/apis/example.io/v1/widgets"

// virtualWorkspaceRows covers the virtual workspaces that show a provider its consumers (5.1, 5.2), and a consumer the exports it may
// bind (5.3).
func virtualWorkspaceRows() []row {
	const (
		all, one   = "/services/apiexport/{a}/widgets/clusters/*", "/services/apiexport/{a}/widgets/clusters/{b}"
		some       = "/apis/example.io/v1/namespaces/default/widgets"
		schemaView = "/services/apiresourceschema/{b}"
	)
	return []row{
		{"5.2", "the objects of all consumers", "alice", all + widgetsPath, "", 200, 200, "WidgetList"},
		{"5.2", "those of one", "alice", one + widgetsPath, "", 200, 200, "WidgetList"},
		{"5.2", "consumers see nothing there", "bob", all + widgetsPath, "", 403, 403, "access denied"},
		{"5.2", "not even of themselves", "bob", one + widgetsPath, "", 403, 403, "access denied"},
		{"5.2", "nor do strangers", "mallory", all + "/apis", "", 403, 403, ""},
		{"5.2", "a cluster that does not bind", "alice", "/services/apiexport/{a}/widgets/clusters/{a}" + widgetsPath, "", 403, 403, "access denied"},
		{"5.2", "a cluster that nobody has", "alice", "/services/apiexport/{a}/widgets/clusters/nope" + widgetsPath, "", 403, 403, "access denied"},
		{"5.2", "an export that nobody has", "alice", "/services/apiexport/{a}/nope/clusters/*" + widgetsPath, "", 404, 404, ""},
		{"5.2", "without a credential", "nobody", all + widgetsPath, "", 403, 401, ""},
		{"5.1", "a consumer by its path", "alice", "/services/apiexport/{a}/widgets/clusters/root:b" + widgetsPath, "", 403, 403, "Path not resolved to a valid virtual workspace"},
		{"5.1", "the provider by its path", "alice", "/services/apiexport/root:a/widgets/clusters/*" + widgetsPath, "", 403, 403, "Path not resolved to a valid virtual workspace"},
		{"5.1", "no consumer at all", "alice", "/services/apiexport/{a}/widgets" + widgetsPath, "", 403, 403, "Path not resolved to a valid virtual workspace"},
		{"5.1", "a namespace of all consumers", "alice", all + some, "", 400, 400, ""},
		{"5.1", "an object of all consumers", "alice", all + some + "/x", "", 400, 400, ""},
		{"5.1", "creating for all consumers", "alice", "POST " + all + some, `{}`, 400, 400, ""},
		{"5.1", "an object that is missing", "alice", one + some + "/x", "", 404, 404, `widgets.example.io \"x\" not found`},
		{"5.1", "a patch of what is missing", "alice", "PATCH " + one + some + "/x", `{}`, 404, 404, ""},
		{"5.1", "a subresource that is not offered", "alice", one + some + "/x/scale", "", 404, 404, ""},
		{"5.1", "objects are checked where they are stored", "alice", "POST " + one + some, `{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"name":"No_t"}}`, 422, 422, ""},
		{"5.1", "a group that is not in the set", "alice", all + "/apis/nope.io/v1", "", 404, 404, ""},
		{"5.1", "a version that is not in the set", "alice", all + "/apis/example.io/v2", "", 404, 404, ""},
		{"5.1", "groups", "alice", all + "/apis", "", 200, 200, `"name":"example.io"`},
		{"5.1", "groups of one", "alice", one + "/apis", "", 200, 200, `"name":"example.io"`},
		{"5.1", "resources", "alice", all + "/apis/example.io/v1", "", 200, 200, `"kind":"Widget"`},
		{"5.1", "OpenAPI", "alice", all + "/openapi/v3", "", 200, 200, "apis/example.io/v1"},
		{"5.1", "OpenAPI of a version", "alice", all + "/openapi/v3/apis/example.io/v1", "", 200, 200, "widgets"},
		{"5.2", "an API that is not claimed", "alice", all + "/api/v1/secrets", "", 404, 404, ""},
		{"5.2", "an API that is not claimed, of one", "alice", one + "/api/v1/secrets", "", 403, 403, "access denied"},
		{"5.2", "bindings to the export", "alice", one + bindings, "", 200, 200, `"name":"w"`},
		{"5.2", "no other bindings", "alice", one + bindings + "/nope", "", 404, 404, ""},
		{"5.2", "bindings in the older version", "alice", all + oldBindings, "", 200, 200, `"name":"w"`},
		{"5.2", "what can be done with them", "alice", all + "/apis/apis.kcp.io/v1alpha2", "", 200, 200, `"verbs":["get","list","watch"]`},
		{"5.2", "they are only read", "alice", "PATCH " + one + bindings + "/w", `{"metadata":{"labels":{"a":"b"}}}`, 403, 403, "access denied"},
		{"5.2", "whoever asks", "masters", "PATCH " + one + bindings + "/w", `{"metadata":{"labels":{"a":"b"}}}`, 405, 403, ""},

		{"5.3", "the schemas of what is bound", "bob", schemaView + schemas, "", 200, 200, "v1.widgets.example.io"},
		{"5.3", "with the provider's cluster", "bob", schemaView + schemas + "/v1.widgets.example.io", "", 200, 200, `"kcp.io/cluster":"{a}"`},
		{"5.3", "by the consumer's name", "bob", schemaView + "/clusters/{b}" + schemas, "", 200, 200, ""},
		{"5.3", "of all there", "bob", schemaView + "/clusters/*" + schemas, "", 200, 200, ""},
		{"5.3", "of another consumer", "bob", schemaView + "/clusters/{a}" + schemas, "", 403, 403, ""},
		{"5.3", "of all consumers", "bob", "/services/apiresourceschema/*" + schemas, "", 403, 403, ""},
		{"5.3", "one that is not bound", "bob", schemaView + schemas + "/nope", "", 404, 404, ""},
		{"5.3", "they are only read", "bob", "DELETE " + schemaView + schemas + "/v1.widgets.example.io", "", 403, 403, ""},
		{"5.3", "by those who see the bindings", "alice", schemaView + schemas, "", 403, 403, ""},
		{"5.3", "where nothing is bound", "masters", "/services/apiresourceschema/system:admin" + schemas, "", 404, 403, ""},
		{"5.3", "what can be done with them", "bob", schemaView + "/apis/apis.kcp.io/v1alpha1", "", 200, 200, `"verbs":["get","list","watch"]`},
	}
}

// identityRows covers requests for the objects of one identity (1.1, 1.5).
func identityRows() []row {
	const all, one = "/clusters/*" + widgetsPath, "/clusters/{b}" + widgetsPath
	return []row{
		{"1.5", "a bound resource of all clusters", "masters", all + ":{identity}", "", 200, 403, "WidgetList"},
		{"1.5", "without its identity", "masters", all, "", 404, 403, ""},
		{"1.5", "with another's", "masters", all + ":{tenancy}", "", 404, 403, ""},
		{"1.5", "it is for masters", "bob", all + ":{identity}", "", 403, 403, "access denied"},
		{"1.5", "it is not written", "masters", "DELETE " + all + ":{identity}", "", 405, 403, "logical cluster"},
		{"1.5", "workspaces of all clusters", "masters", "/clusters/*" + workspaces + ":{tenancy}", "", 200, 403, "WorkspaceList"},
		{"1.5", "with another's identity", "masters", "/clusters/*" + workspaces + ":{identity}", "", 404, 403, ""},
		{"1.5", "workspaces without their identity", "masters", "/clusters/*" + workspaces, "", 404, 403, "identity"},
		{"1.5", "bindings of all clusters", "masters", "/clusters/*" + bindings, "", 200, 403, "APIBindingList"},
		{"1.5", "exports of all clusters, in the older version", "masters", "/clusters/*" + oldExports, "", 200, 403, "APIExportList"},
		{"1.1", "a bound resource by its identity", "masters", one + ":{identity}", "", 200, 403, "WidgetList"},
		{"1.1", "by that of another", "masters", one + ":{tenancy}", "", 404, 403, ""},
		{"1.1", "where it is not bound", "masters", "/clusters/{a}" + widgetsPath + ":{identity}", "", 404, 403, ""},
	}
}
