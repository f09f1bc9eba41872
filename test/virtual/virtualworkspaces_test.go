package virtual

import (
	"net/http"
	"strings"
)

// exportStates are the workspaces of consumers.
var exportStates = []string{"bound", "rejected", "deleting", "other", "mismatch", "unbound"}

// virtualWorkspace is a virtual workspace with its part of the matrix.
type virtualWorkspace struct {
	name      string
	states    []string
	resources map[string]resource
	// basePath returns the base path for a logical cluster.
	basePath func(s *env, state string) string
}

// resource is one kind of resource in a virtual workspace.
type resource struct {
	verbs []string
	// path is that of the collection; subresources follow the name of an object.
	path string
	// body is an object; NAME is replaced by its name.
	body string
	// name is that of the object that exists.
	name func(state string) string
}

// existingName returns the name of the object that exists in every state.
func existingName(string) string { return "existing" }

// widgetName is existing for a resource whose objects are deleted with the binding: while a binding is being deleted,
// one object with a finalizer remains.
func widgetName(state string) string {
	if state == "deleting" {
		return "held"
	}
	return "existing"
}

var (
	readVerbs   = []string{"get", "list", "watch"}
	writeVerbs  = []string{"create", "update", "patch", "apply", "delete", "deletecollection"}
	statusVerbs = []string{"getstatus", "patchstatus", "getscale"}
	allVerbs    = append(append(append([]string{}, readVerbs...), writeVerbs...), statusVerbs...)
)

// Flavors are cached resources, in one logical cluster or in all.
var (
	cachedStates   = []string{"bound", "unbound", "all"}
	selectedFlavor = resource{verbs: allVerbs, path: "/apis/" + group + "/v1/flavors", name: existingName,
		body: `{"apiVersion":"` + group + `/v1","kind":"Flavor","metadata":{"name":"NAME"}}`}
	unselectedFlavor = resource{verbs: []string{"get"}, path: selectedFlavor.path, name: func(string) string { return "unselected" }}
)

func clusterOrWildcard(s *env, state string) string {
	if state == "all" {
		return "*"
	}
	return s.clusters[state]
}

var virtualWorkspaces = []virtualWorkspace{
	{
		name: "apiexport", states: exportStates,
		basePath: func(s *env, state string) string {
			return "/services/apiexport/" + s.clusters["provider"] + "/widgets/clusters/" + s.clusters[state]
		},
		resources: exportResources("/namespaces/default"),
	},
	{
		name: "wildcard", states: []string{"any"},
		basePath: func(s *env, _ string) string {
			return "/services/apiexport/" + s.clusters["provider"] + "/widgets/clusters/*"
		},
		resources: exportResources(""),
	},
	{
		name: "syncer", states: exportStates,
		basePath: func(s *env, state string) string {
			return "/services/syncer/" + s.clusters["provider"] + ":widgets/clusters/" + s.clusters[state]
		},
		resources: syncerResources("/namespaces/default"),
	},
	{
		name: "syncerwild", states: []string{"any"},
		basePath: func(s *env, _ string) string {
			return "/services/syncer/" + s.clusters["provider"] + ":widgets/clusters/*"
		},
		resources: syncerResources(""),
	},
	{
		name: "schemas", states: exportStates,
		basePath: func(s *env, state string) string { return "/services/apiresourceschema/" + s.clusters[state] },
		resources: map[string]resource{
			"documents": documentRequests,
			"schema": {verbs: allVerbs, path: "/apis/apis.kcp.io/v1alpha1/apiresourceschemas", body: `{"apiVersion":"apis.kcp.io/v1alpha1","kind":"APIResourceSchema","metadata":{"name":"NAME"}}`,
				name: func(string) string { return "v1.widgets.example.com" }},
		},
	},
	{
		name: "replication", states: cachedStates,
		basePath: func(s *env, state string) string {
			return "/services/replication/" + s.clusters["provider"] + "/flavors/clusters/" + clusterOrWildcard(s, state)
		},
		resources: map[string]resource{
			"documents": documentRequests, "selected": selectedFlavor, "unselected": unselectedFlavor,
			"unclaimed": {verbs: []string{"get", "list"}, path: "/api/v1/namespaces/default/secrets", name: existingName},
		},
	},
	{
		name: "cached", states: cachedStates,
		basePath: func(s *env, state string) string {
			return "/services/apiexport/" + s.clusters["provider"] + "/flavors/clusters/" + clusterOrWildcard(s, state)
		},
		resources: map[string]resource{
			"documents": documentRequests, "selected": selectedFlavor, "unselected": unselectedFlavor,
		},
	},
	lifecycleVirtualWorkspace("initializing", "initializingworkspaces"),
	lifecycleVirtualWorkspace("terminating", "terminatingworkspaces"),
}

// exportResources returns the resources of the virtual workspace of an export, in a namespace or over all of them.
func exportResources(namespace string) map[string]resource {
	exported := func(kind, plural string, name func(string) string) resource {
		return resource{verbs: allVerbs, path: "/apis/" + group + "/v1" + namespace + "/" + plural, name: name,
			body: `{"apiVersion":"` + group + `/v1","kind":"` + kind + `","metadata":{"name":"NAME","namespace":"default"},"spec":{}}`}
	}
	core := func(kind, plural string) resource {
		return resource{verbs: allVerbs, path: "/api/v1" + namespace + "/" + plural, name: existingName,
			body: `{"apiVersion":"v1","kind":"` + kind + `","metadata":{"name":"NAME","namespace":"default"}}`}
	}
	return map[string]resource{
		"documents": documentRequests,
		"exported":  exported("Widget", "widgets", widgetName),
		"shared":    exported("Gizmo", "gizmos", existingName),
		"claimed":   core("ConfigMap", "configmaps"),
		"unclaimed": core("Secret", "secrets"),
		"bindings": {verbs: allVerbs, path: "/apis/apis.kcp.io/v1alpha2/apibindings", name: func(string) string { return "widgets" },
			body: `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIBinding","metadata":{"name":"NAME"},"spec":{"reference":{"export":{"name":"x"}}}}`},
	}
}

// syncerResources returns the resources of a syncer's view: those of the export, and the published one under its other name.
// The object that exists matches the filter, unless it is hidden.
func syncerResources(namespace string) map[string]resource {
	all := exportResources(namespace)
	published := resource{verbs: allVerbs, path: "/apis/service.io/v1" + namespace + "/gadgets", name: widgetName,
		body: `{"apiVersion":"service.io/v1","kind":"Gadget","metadata":{"name":"NAME","namespace":"default"}}`}
	hidden := published
	hidden.verbs, hidden.name = []string{"get", "update", "patch", "getstatus", "patchstatus"}, func(string) string { return "hidden" }
	all["published"], all["hidden"] = published, hidden
	return all
}

var documentRequests = resource{verbs: []string{"groups", "openapi"}}

// buildRequest returns the request of a verb.
func (r resource) buildRequest(verb, state string) (method, path, body, media string) {
	named := ""
	if r.name != nil {
		named = r.path + "/" + r.name(state)
	}
	object := func(name string) string { return strings.Replace(r.body, "NAME", name, 1) }
	const dryRun = "?dryRun=All"
	switch verb {
	case "groups":
		return http.MethodGet, "/apis", "", ""
	case "openapi":
		return http.MethodGet, "/openapi/v3", "", ""
	case "get":
		return http.MethodGet, named, "", ""
	case "list":
		return http.MethodGet, r.path, "", ""
	case "watch":
		return http.MethodGet, r.path + "?watch=1&timeoutSeconds=30", "", ""
	case "create":
		return http.MethodPost, r.path + dryRun, object("created"), "application/json"
	case "update":
		return http.MethodPut, named + dryRun, strings.Replace(r.body, "NAME", r.name(state), 1), "application/json"
	case "patch":
		return http.MethodPatch, named + dryRun, `{"metadata":{"annotations":{"a":"b"}}}`, "application/merge-patch+json"
	case "apply":
		return http.MethodPatch, r.path + "/applied" + dryRun + "&fieldManager=matrix", object("applied"), "application/apply-patch+yaml"
	case "delete":
		return http.MethodDelete, named + dryRun, "", ""
	case "deletecollection":
		return http.MethodDelete, r.path + dryRun, "", ""
	case "getstatus":
		return http.MethodGet, named + "/status", "", ""
	case "patchstatus":
		return http.MethodPatch, named + "/status" + dryRun, `{"status":{}}`, "application/merge-patch+json"
	case "getscale":
		return http.MethodGet, named + "/scale", "", ""
	}
	return "", "", "", ""
}
