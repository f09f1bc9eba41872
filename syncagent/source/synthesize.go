package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/openapi"
	"k8s.io/utils/ptr"
)

const (
	referencePrefix = "#/components/schemas/"
	kindsExtension  = "x-kubernetes-group-version-kind"
)

// synthesize creates a definition from discovery and OpenAPI. All versions are served; the preferred version is the storage version.
func synthesize(ctx context.Context, d Discovery, found *resource) (*apiextensionsv1.CustomResourceDefinition, error) {
	paths, err := d.OpenAPIV3WithContext(ctx).PathsWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing OpenAPI documents: %w", err)
	}
	group, scope := found.group, apiextensionsv1.ClusterScoped
	if group == "" {
		group = coreGroup
	}
	if found.namespaced {
		scope = apiextensionsv1.NamespaceScoped
	}
	definition := newDefinition(found.plural+"."+group, found.group, "")
	definition.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: found.group, Scope: scope,
		Names: apiextensionsv1.CustomResourceDefinitionNames{
			Kind: found.kind, ListKind: found.kind + "List", Plural: found.plural, Singular: found.singular,
			ShortNames: found.shortNames, Categories: found.categories,
		},
	}
	for i, version := range found.versions {
		gvk := schema.GroupVersionKind{Group: found.group, Version: version.name, Kind: found.kind}
		root, err := schemaOf(ctx, paths, gvk)
		if err != nil {
			return nil, fmt.Errorf("version %s: %w", version.name, err)
		}
		definition.Spec.Versions = append(definition.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: version.name, Served: true, Storage: i == 0,
			Schema:       &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: root},
			Subresources: subresources(version, root),
		})
	}
	return definition, nil
}

// schemaOf returns the structural schema of a kind.
func schemaOf(ctx context.Context, paths map[string]openapi.GroupVersionWithContext, gvk schema.GroupVersionKind) (*apiextensionsv1.JSONSchemaProps, error) {
	path := "apis/" + gvk.GroupVersion().String()
	if gvk.Group == "" {
		path = "api/" + gvk.Version
	}
	published, ok := paths[path]
	if !ok {
		return nil, errors.New("the service cluster publishes no OpenAPI v3 document for it")
	}
	text, err := published.SchemaWithContext(ctx, runtime.ContentTypeJSON)
	if err != nil {
		return nil, fmt.Errorf("reading its OpenAPI document: %w", err)
	}
	var document struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("reading its OpenAPI document: %w", err)
	}
	name, err := componentOf(document.Components.Schemas, gvk)
	if err != nil {
		return nil, err
	}
	return newConverter(document.Components.Schemas).root(name)
}

// componentOf returns the name of the component that describes a kind.
func componentOf(components map[string]json.RawMessage, gvk schema.GroupVersionKind) (string, error) {
	for name, text := range components {
		var component struct {
			Kinds []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
		}
		if !strings.Contains(string(text), kindsExtension) {
			continue
		}
		if err := json.Unmarshal(text, &component); err != nil {
			return "", fmt.Errorf("reading component %s: %w", name, err)
		}
		// Options of requests have many kinds.
		if len(component.Kinds) == 1 && component.Kinds[0] == gvk {
			return name, nil
		}
	}
	return "", errors.New("its OpenAPI document does not describe the kind")
}

// subresources returns the subresources that discovery lists. It uses the scale paths of Kubernetes' own workloads.
func subresources(version version, root *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.CustomResourceSubresources {
	result := &apiextensionsv1.CustomResourceSubresources{}
	if version.status {
		result.Status = &apiextensionsv1.CustomResourceSubresourceStatus{}
	}
	_, spec := root.Properties["spec"].Properties["replicas"]
	_, status := root.Properties["status"].Properties["replicas"]
	if version.scale && spec && status {
		result.Scale = &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"}
		if root.Properties["status"].Properties["selector"].Type == "string" {
			result.Scale.LabelSelectorPath = ptr.To(".status.selector")
		}
	}
	if result.Status == nil && result.Scale == nil {
		return nil
	}
	return result
}
