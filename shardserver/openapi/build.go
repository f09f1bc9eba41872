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

// buildV3 makes the document of one version: the stock one without what the set hides, and what definitions add.
func (h *Handler) buildV3(ctx context.Context, set *discovery.Set, version schema.GroupVersion, compiled *index) ([]byte, error) {
	var all []*spec3.OpenAPI
	if name := strings.TrimPrefix(discovery.PathOf(version), "/"); compiled.tags[name] != "" {
		var stock spec3.OpenAPI
		if err := h.source.Ask(ctx, pathV3+"/"+name, "application/json", &stock); err != nil {
			return nil, err
		}
		withoutHidden(set, version, &stock)
		if set.Compiled.IsView() {
			onlyOffered(set.Compiled, version, &stock)
		}
		all = append(all, &stock)
	}
	for _, definition := range set.Serving(version) {
		object, err := versioned(definition)
		if err != nil {
			return nil, err
		}
		part, err := builder.BuildOpenAPIV3(object, version.Version, options(false))
		if err != nil {
			klog.FromContext(ctx).V(2).Info("A definition has no OpenAPI v3", "definition", definition.Object.Name, "reason", err)
			continue
		}
		if version.Group == "" && part.Paths != nil {
			part.Paths.Paths = groupless(part.Paths.Paths)
		}
		all = append(all, part)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no definition of %s has a schema that can be shown", version)
	}
	merged := all[0]
	for _, part := range all[1:] {
		addV3(merged, part)
	}
	return json.Marshal(merged)
}

// groupless returns the paths of a resource without a group where they are: upstream's builder takes it for granted that
// there is one.
func groupless[V any](built map[string]V) map[string]V {
	paths := make(map[string]V, len(built))
	for path, of := range built {
		rest := strings.TrimLeft(strings.TrimPrefix(path, "/apis/"), "/")
		paths["/api/"+rest] = of
	}
	return paths
}

func options(v2 bool) builder.Options {
	return builder.Options{
		V2:                      v2,
		IncludeSelectableFields: utilfeature.DefaultFeatureGate.Enabled(apiextensionsfeatures.CustomResourceFieldSelectors),
	}
}

// versioned returns a definition in the version that the builders take, as a copy: conversion lets both share memory,
// and the object of the watch cache shares its own with those of other logical clusters.
func versioned(definition discovery.Definition) (*apiextensionsv1.CustomResourceDefinition, error) {
	var object apiextensionsv1.CustomResourceDefinition
	copied := definition.Object.DeepCopy()
	if err := apiextensionsv1.Convert_apiextensions_CustomResourceDefinition_To_v1_CustomResourceDefinition(copied, &object, nil); err != nil {
		return nil, fmt.Errorf("converting definition %q: %w", definition.Object.Name, err)
	}
	return &object, nil
}

// addV3 adds a part to a document, which both are ours. What the document has already stays: definitions share the
// schemas of metadata, and accepted names keep apart all others.
func addV3(document, part *spec3.OpenAPI) {
	if part.Paths != nil {
		if document.Paths == nil {
			document.Paths = &spec3.Paths{}
		}
		document.Paths.Paths = union(document.Paths.Paths, part.Paths.Paths)
	}
	if part.Components != nil {
		if document.Components == nil {
			document.Components = &spec3.Components{}
		}
		document.Components.Schemas = union(document.Components.Schemas, part.Components.Schemas)
	}
}

func union[V any](first, second map[string]V) map[string]V {
	all := make(map[string]V, len(first)+len(second))
	maps.Copy(all, second)
	maps.Copy(all, first)
	return all
}

// withoutHidden removes what a set hides from the document of a version.
func withoutHidden(set *discovery.Set, version schema.GroupVersion, document *spec3.OpenAPI) {
	if document.Paths != nil {
		maps.DeleteFunc(document.Paths.Paths, func(path string, _ *spec3.Path) bool { return hides(set, version, path) })
	}
	if kinds := set.HiddenKinds(version); document.Components != nil && len(kinds) > 0 {
		maps.DeleteFunc(document.Components.Schemas, func(_ string, of *spec.Schema) bool { return isOf(of, version, kinds) })
	}
}

// hides tells whether a path is one of a resource of the version that the set hides.
func hides(set *discovery.Set, version schema.GroupVersion, path string) bool {
	rest, ok := strings.CutPrefix(path, discovery.PathOf(version)+"/")
	if !ok {
		return false
	}
	parts := strings.Split(strings.TrimPrefix(rest, "watch/"), "/")
	if len(parts) > 2 && parts[0] == "namespaces" && parts[1] == "{namespace}" {
		parts = parts[2:]
	}
	return set.Hides(schema.GroupResource{Group: version.Group, Resource: parts[0]})
}

// isOf tells whether a schema is that of one of the kinds of a version, or of a list of it.
func isOf(of *spec.Schema, version schema.GroupVersion, kinds []string) bool {
	marks, _ := of.Extensions[endpoints.RouteMetaGVK].([]any)
	if len(marks) != 1 {
		return false
	}
	mark, _ := marks[0].(map[string]any)
	kind, _ := mark["kind"].(string)
	return mark["group"] == version.Group && mark["version"] == version.Version && slices.Contains(kinds, strings.TrimSuffix(kind, "List"))
}

// buildV2 makes the document of a set: the stock one without what the set hides, and what definitions add.
func buildV2(ctx context.Context, set *discovery.Set, stock *spec.Swagger) ([]byte, error) {
	shown := *stock
	for _, resource := range set.Hidden {
		for _, version := range set.VersionsOf(resource.Group) {
			shown = withoutHiddenV2(set, version, shown)
		}
	}
	var parts []*spec.Swagger
	for _, definition := range set.Definitions {
		object, err := versioned(definition)
		if err != nil {
			return nil, err
		}
		for _, served := range definition.Object.Spec.Versions {
			if !served.Served {
				continue
			}
			part, err := partV2(object, served)
			if err != nil {
				klog.FromContext(ctx).V(2).Info("A definition has no OpenAPI v2", "definition", definition.Object.Name, "version", served.Name, "reason", err)
				continue
			}
			parts = append(parts, part)
		}
	}
	merged, err := builder.MergeSpecs(&shown, parts...)
	if err != nil {
		return nil, err
	}
	return merged.MarshalJSON()
}

func partV2(object *apiextensionsv1.CustomResourceDefinition, served apiextensions.CustomResourceDefinitionVersion) (*spec.Swagger, error) {
	part, err := builder.BuildOpenAPIV2(object, served.Name, options(true))
	if err != nil {
		return nil, err
	}
	part.Definitions = handler.PruneDefaults(part.Definitions) // as in the stock document
	if object.Spec.Group == "" && part.Paths != nil {
		part.Paths.Paths = groupless(part.Paths.Paths)
	}
	return part, nil
}

// withoutHiddenV2 returns a document that shares all with the given one, except what a set hides of a version.
func withoutHiddenV2(set *discovery.Set, version schema.GroupVersion, document spec.Swagger) spec.Swagger {
	if document.Paths != nil {
		paths := *document.Paths
		paths.Paths = maps.Clone(paths.Paths)
		maps.DeleteFunc(paths.Paths, func(path string, _ spec.PathItem) bool { return hides(set, version, path) })
		document.Paths = &paths
	}
	kinds := set.HiddenKinds(version)
	document.Definitions = maps.Clone(document.Definitions)
	maps.DeleteFunc(document.Definitions, func(_ string, of spec.Schema) bool { return isOf(&of, version, kinds) })
	return document
}
