package openapi

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	stock "k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/spec3"

	"github.com/atoll-dev/atoll/shardserver/discovery"
)

// hasDocument returns whether an API set has an upstream document that is not one of a group version, such as that of the
// list of groups. Logical clusters have all of them, views those of their groups.
func hasDocument(set *discovery.APISet, name string) bool {
	if _, isVersion := groupVersion(name); isVersion || !set.Compiled.IsView() {
		return true
	}
	switch name {
	case "version", "api", "apis":
		return true
	}
	group, isGroup := strings.CutPrefix(name, "apis/")
	return isGroup && (set.Compiled.HasGroup(group) || slices.Contains(definedGroups(set), group))
}

// definedGroups returns the groups of the definitions of a view. Each has a document, as upstream's groups do. In logical
// clusters, as in stock Kubernetes, custom groups have none.
func definedGroups(set *discovery.APISet) []string {
	if !set.Compiled.IsView() {
		return nil
	}
	var groups []string
	for _, definition := range set.Definitions {
		if group := definition.Object.Spec.Group; group != "" && !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
	}
	return groups
}

// groupKey returns the cache key of the document of a group, which depends on nothing but its name.
func groupKey(group string) discovery.Hash { return sha256.Sum256([]byte("group " + group)) }

// buildGroup builds the document of a group from the route that upstream installs for one.
func (h *Handler) buildGroup(group string) ([]byte, error) {
	routes := stock.NewAPIGroupHandler(h.serializer, metav1.APIGroup{Name: group}).WebService()
	document, err := builder3.BuildOpenAPISpecFromRoutes([]common.RouteContainer{&restfuladapter.WebServiceAdapter{WebService: routes}}, h.config)
	if err != nil {
		return nil, err
	}
	return json.Marshal(document)
}

// restrictPaths removes from the document of a version what a view does not have: paths and operations of other resources,
// and schemas without references.
func restrictPaths(view *discovery.Compiled, version schema.GroupVersion, document *spec3.OpenAPI) {
	if document.Paths == nil {
		return
	}
	maps.DeleteFunc(document.Paths.Paths, func(path string, operations *spec3.Path) bool {
		rest, ok := strings.CutPrefix(path, discovery.PathOf(version)+"/")
		if !ok || rest == "" {
			return !ok
		}
		return !restrictOperations(view, version, rest, operations)
	})
	pruneSchemas(document)
}

// restrictOperations removes the operations that a view does not have, and returns whether any remains. The path is relative
// to the version, "[watch/][namespaces/{namespace}/]<resource>[/{name}[/<subresource>]]".
func restrictOperations(view *discovery.Compiled, version schema.GroupVersion, path string, operations *spec3.Path) bool {
	path, watch := strings.CutPrefix(path, "watch/")
	parts := strings.Split(path, "/")
	if len(parts) > 2 && parts[0] == "namespaces" && parts[1] == "{namespace}" {
		parts = parts[2:]
	}
	name, readVerb, deleteVerb := parts[0], "list", "deletecollection"
	if len(parts) > 1 {
		readVerb, deleteVerb = "get", "delete"
	}
	if len(parts) > 2 {
		name += "/" + parts[2]
	}
	if watch {
		readVerb = "watch"
	}
	resource, found := view.GetResource(version, name)
	keep := func(operation **spec3.Operation, verb string) {
		if !found || !slices.Contains(resource.Verbs, verb) {
			*operation = nil
		}
	}
	keep(&operations.Get, readVerb)
	keep(&operations.Post, "create")
	keep(&operations.Put, "update")
	keep(&operations.Patch, "patch")
	keep(&operations.Delete, deleteVerb)
	return operations.Get != nil || operations.Post != nil || operations.Put != nil || operations.Patch != nil || operations.Delete != nil
}

var schemaReference = regexp.MustCompile(`"#/components/schemas/([^"]+)"`)

// pruneSchemas removes the schemas that no path refers to.
func pruneSchemas(document *spec3.OpenAPI) {
	if document.Components == nil {
		return
	}
	schemas := document.Components.Schemas
	reached := map[string]bool{}
	var visit func(part any)
	visit = func(part any) {
		encoded, err := json.Marshal(part)
		if err != nil {
			return // encoding the whole document returns the same error
		}
		for _, match := range schemaReference.FindAllSubmatch(encoded, -1) {
			if name := string(match[1]); !reached[name] && schemas[name] != nil {
				reached[name] = true
				visit(schemas[name])
			}
		}
	}
	visit(document.Paths)
	for name := range schemas {
		if !reached[name] {
			delete(schemas, name)
		}
	}
}

// View returns a handler for other API sets, which are views of the built-in resources. It shares the caches. next serves
// upstream documents that are not of a group version, and every other request.
func (h *Handler) View(resolver discovery.APISetResolver, next http.Handler) *Handler {
	return &Handler{
		next: next, resolver: resolver, source: h.source, config: h.config, serializer: h.serializer, compiledV2: h.compiledV2, cacheV2: h.cacheV2, cacheV3: h.cacheV3,
	}
}

// Source returns the source of the built-in documents.
func (h *Handler) Source() *discovery.Source { return h.source }
