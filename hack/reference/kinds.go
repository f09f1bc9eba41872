package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// area is a page of kinds.
type area struct{ file, title, about, pattern string }

var areas = []area{
	{"operator.md", "Kinds of the operator", "What the operator acts on, in the cluster that it runs in.", "config/crd/bases/*.yaml"},
	{"workspaces.md", "Kinds of workspaces", "What every shard serves. Nothing of it is installed as a definition.", "config/kcp/crd/*.yaml"},
	{"sync-agent.md", "Kinds of the sync agent", "What the sync agent reads on a service cluster.", "config/sync-agent/crd/*.yaml"},
	{"infrastructure.md", "Kinds of the infrastructure provider", "What platform operators create in the workspace of the provider; the group is configurable.", "infrastructure/catalogue/crd/*.yaml"},
}

// opaque are types of Kubernetes itself, which are documented there.
var opaque = map[string]string{
	"template": "PodTemplateSpec", "affinity": "Affinity", "extraVolumes": "[]Volume", "initContainers": "[]Container", "openAPIV3Schema": "JSONSchemaProps", "managedFields": "[]ManagedFieldsEntry",
}

// kindPages returns the pages of all areas, by file.
func kindPages() (map[string]string, error) {
	pages := map[string]string{}
	for _, a := range areas {
		paths, err := filepath.Glob(a.pattern)
		if err != nil {
			return nil, err
		}
		var page strings.Builder
		fmt.Fprintf(&page, "# %s\n\n%s Generated from the definitions by `make generate`.\n", a.title, a.about)
		for _, path := range paths {
			if filepath.Base(path) == "kustomization.yaml" {
				continue
			}
			if err := writeKind(&page, path); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
		pages[a.file] = page.String()
	}
	return pages, nil
}

func writeKind(page *strings.Builder, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, crd); err != nil {
		return err
	}
	for _, version := range crd.Spec.Versions {
		schema := version.Schema.OpenAPIV3Schema
		fmt.Fprintf(page, "\n## %s (%s/%s)\n\n", crd.Spec.Names.Kind, crd.Spec.Group, version.Name)
		if schema.Description != "" {
			fmt.Fprintf(page, "%s\n\n", sentence(schema.Description))
		}
		fmt.Fprintf(page, "%s-scoped, `%s`", crd.Spec.Scope, crd.Spec.Names.Plural)
		if len(crd.Spec.Names.ShortNames) > 0 {
			fmt.Fprintf(page, ", short `%s`", strings.Join(crd.Spec.Names.ShortNames, "`, `"))
		}
		page.WriteString("\n\n| field | type | meaning |\n| --- | --- | --- |\n")
		for _, name := range []string{"spec", "status"} {
			if property, ok := schema.Properties[name]; ok {
				writeFields(page, name, &property)
			}
		}
	}
	return nil
}

// writeFields writes a row for each field below a path.
func writeFields(page *strings.Builder, path string, schema *apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[name]
		at, required := path+"."+name, ""
		if slices.Contains(schema.Required, name) {
			required = ", required"
		}
		if known, ok := opaque[name]; ok && len(property.Properties)+len(itemsOf(&property).Properties) > 0 {
			fmt.Fprintf(page, "| `%s` | %s%s | %s |\n", at, known, required, sentence(property.Description))
			continue
		}
		fmt.Fprintf(page, "| `%s` | %s%s | %s |\n", at, typeOf(&property), required, meaning(&property))
		inner := &property
		switch {
		case property.Items != nil && property.Items.Schema != nil:
			inner, at = property.Items.Schema, at+"[]"
		case property.AdditionalProperties != nil && property.AdditionalProperties.Schema != nil:
			inner, at = property.AdditionalProperties.Schema, at+".*"
		}
		writeFields(page, at, inner)
	}
}

func itemsOf(s *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if s.Items != nil && s.Items.Schema != nil {
		return s.Items.Schema
	}
	return &apiextensionsv1.JSONSchemaProps{}
}

func typeOf(s *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case s.XIntOrString:
		return "integer or string"
	case s.Items != nil && s.Items.Schema != nil:
		return "[]" + typeOf(s.Items.Schema)
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return "map of " + typeOf(s.AdditionalProperties.Schema)
	case s.Type == "":
		return "any"
	}
	return s.Type
}

// meaning returns the description together with the allowed values.
func meaning(s *apiextensionsv1.JSONSchemaProps) string {
	parts := []string{sentence(s.Description)}
	if len(s.Enum) > 0 {
		values := make([]string, len(s.Enum))
		for i, value := range s.Enum {
			values[i] = "`" + strings.Trim(string(value.Raw), `"`) + "`"
		}
		parts = append(parts, "One of "+strings.Join(values, ", ")+".")
	}
	if s.Default != nil {
		parts = append(parts, "Default: `"+cell(string(s.Default.Raw))+"`.")
	}
	return strings.TrimSpace(strings.Join(parts, " "))
}

// sentence returns a description as a cell of a table.
func sentence(text string) string {
	text, _, _ = strings.Cut(text, "\n\n")
	return cell(strings.Join(strings.Fields(text), " "))
}

func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "{{", "{ {").Replace(text)
}
