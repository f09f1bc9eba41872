package openapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	apiextensionsfeatures "k8s.io/apiextensions-apiserver/pkg/features"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/atoll-dev/atoll/shardserver/discovery"
)

// buildV3 builds the document of one version: the built-in one without hidden resources, merged with those of definitions.
func (h *Handler) buildV3(ctx context.Context, set *discovery.APISet, version schema.GroupVersion, compiled *index) ([]byte, error) {
	var all []*spec3.OpenAPI
	if name := strings.TrimPrefix(discovery.PathOf(version), "/"); compiled.tags[name] != "" {
		var stock spec3.OpenAPI
		if err := h.source.Get(ctx, pathV3+"/"+name, "application/json", &stock); err != nil {
			return nil, err
		}
		removeHidden(set, version, &stock)
		if set.Compiled.IsView() {
			restrictPaths(set.Compiled, version, &stock)
		}
		all = append(all, &stock)
	}
	for _, definition := range set.DefinitionsOf(version) {
		object, err := toV1(definition)
		if err != nil {
			return nil, err
		}
		part, err := builder.BuildOpenAPIV3(object, version.Version, builderOptions(false))
		if err != nil {
			klog.FromContext(ctx).V(2).Info("A definition has no OpenAPI v3", "definition", definition.Object.Name, "err", err)
			continue
		}
		if version.Group == "" && part.Paths != nil {
			part.Paths.Paths = trimGroup(part.Paths.Paths)
		}
		all = append(all, part)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no definition of %s has a schema for OpenAPI", version)
	}
	merged := all[0]
	for _, part := range all[1:] {
		mergeV3(merged, part)
	}
	return json.Marshal(merged)
}

// trimGroup returns the paths of a resource without a group. Upstream's builder supports only resources with a group.
func trimGroup[V any](built map[string]V) map[string]V {
	paths := make(map[string]V, len(built))
	for path, item := range built {
		rest := strings.TrimLeft(strings.TrimPrefix(path, "/apis/"), "/")
		paths["/api/"+rest] = item
	}
	return paths
}

func builderOptions(v2 bool) builder.Options {
	return builder.Options{
		V2:                      v2,
		IncludeSelectableFields: utilfeature.DefaultFeatureGate.Enabled(apiextensionsfeatures.CustomResourceFieldSelectors),
	}
}

// toV1 returns a deep copy of a definition in version v1, for the builders. The object of the watch cache shares memory with
// those of other logical clusters.
func toV1(definition discovery.Definition) (*apiextensionsv1.CustomResourceDefinition, error) {
	var object apiextensionsv1.CustomResourceDefinition
	copied := definition.Object.DeepCopy()
	if err := apiextensionsv1.Convert_apiextensions_CustomResourceDefinition_To_v1_CustomResourceDefinition(copied, &object, nil); err != nil {
		return nil, fmt.Errorf("converting definition %q: %w", definition.Object.Name, err)
	}
	return &object, nil
}

// mergeV3 merges a part into a document, and may modify both. Existing entries stay: definitions have only the schemas of
// metadata in common.
func mergeV3(document, part *spec3.OpenAPI) {
	if part.Paths != nil {
		if document.Paths == nil {
			document.Paths = &spec3.Paths{}
		}
		document.Paths.Paths = mergeMaps(document.Paths.Paths, part.Paths.Paths)
	}
	if part.Components != nil {
		if document.Components == nil {
			document.Components = &spec3.Components{}
		}
		document.Components.Schemas = mergeMaps(document.Components.Schemas, part.Components.Schemas)
	}
}

func mergeMaps[V any](first, second map[string]V) map[string]V {
	all := make(map[string]V, len(first)+len(second))
	maps.Copy(all, second)
	maps.Copy(all, first)
	return all
}

// removeHidden removes hidden resources from the document of a version.
func removeHidden(set *discovery.APISet, version schema.GroupVersion, document *spec3.OpenAPI) {
	if document.Paths != nil {
		maps.DeleteFunc(document.Paths.Paths, func(path string, _ *spec3.Path) bool { return isHiddenPath(set, version, path) })
	}
	if kinds := set.HiddenKinds(version); document.Components != nil && len(kinds) > 0 {
		maps.DeleteFunc(document.Components.Schemas, func(_ string, of *spec.Schema) bool { return isOfKind(of, version, kinds) })
	}
}

// isHiddenPath returns whether a path is that of a hidden resource.
func isHiddenPath(set *discovery.APISet, version schema.GroupVersion, path string) bool {
	rest, ok := strings.CutPrefix(path, discovery.PathOf(version)+"/")
	if !ok {
		return false
	}
	parts := strings.Split(strings.TrimPrefix(rest, "watch/"), "/")
	if len(parts) > 2 && parts[0] == "namespaces" && parts[1] == "{namespace}" {
		parts = parts[2:]
	}
	return set.IsHidden(schema.GroupResource{Group: version.Group, Resource: parts[0]})
}

// isOfKind returns whether a schema is that of one of the kinds of a version, or of its list.
func isOfKind(of *spec.Schema, version schema.GroupVersion, kinds []string) bool {
	gvks, _ := of.Extensions[endpoints.RouteMetaGVK].([]any)
	if len(gvks) != 1 {
		return false
	}
	gvk, _ := gvks[0].(map[string]any)
	kind, _ := gvk["kind"].(string)
	return gvk["group"] == version.Group && gvk["version"] == version.Version && slices.Contains(kinds, strings.TrimSuffix(kind, "List"))
}

// buildV2 builds the document of an API set: the built-in one without hidden resources, merged with those of definitions.
func buildV2(ctx context.Context, set *discovery.APISet, stock *spec.Swagger) ([]byte, error) {
	document := *stock
	for _, resource := range set.Hidden {
		for _, version := range set.VersionsOf(resource.Group) {
			document = removeHiddenV2(set, version, document)
		}
	}
	var parts []*spec.Swagger
	for _, definition := range set.Definitions {
		object, err := toV1(definition)
		if err != nil {
			return nil, err
		}
		for _, served := range definition.Object.Spec.Versions {
			if !served.Served {
				continue
			}
			part, err := buildPartV2(object, served)
			if err != nil {
				klog.FromContext(ctx).V(2).Info("A definition has no OpenAPI v2", "definition", definition.Object.Name, "version", served.Name, "err", err)
				continue
			}
			parts = append(parts, part)
		}
	}
	merged, err := builder.MergeSpecs(&document, parts...)
	if err != nil {
		return nil, err
	}
	return merged.MarshalJSON()
}

func buildPartV2(object *apiextensionsv1.CustomResourceDefinition, served apiextensions.CustomResourceDefinitionVersion) (*spec.Swagger, error) {
	part, err := builder.BuildOpenAPIV2(object, served.Name, builderOptions(true))
	if err != nil {
		return nil, err
	}
	part.Definitions = handler.PruneDefaults(part.Definitions) // as upstream
	if object.Spec.Group == "" && part.Paths != nil {
		part.Paths.Paths = trimGroup(part.Paths.Paths)
	}
	return part, nil
}

// removeHiddenV2 returns a copy of a document without the hidden resources of a version. It shares everything else.
func removeHiddenV2(set *discovery.APISet, version schema.GroupVersion, document spec.Swagger) spec.Swagger {
	if document.Paths != nil {
		paths := *document.Paths
		paths.Paths = maps.Clone(paths.Paths)
		maps.DeleteFunc(paths.Paths, func(path string, _ spec.PathItem) bool { return isHiddenPath(set, version, path) })
		document.Paths = &paths
	}
	kinds := set.HiddenKinds(version)
	document.Definitions = maps.Clone(document.Definitions)
	maps.DeleteFunc(document.Definitions, func(_ string, of spec.Schema) bool { return isOfKind(&of, version, kinds) })
	return document
}
