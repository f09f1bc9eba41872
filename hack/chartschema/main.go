// Command chartschema writes the JSON schema of the values of the chart of installations. It contains the schemas of the specs of the
// operator's kinds, so that Helm reports an error in a values file before it applies anything.
//
//	chartschema config/crd/bases charts/atoll-installation/values.schema.json
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// opaque are fields with types of Kubernetes itself, whose schemas are as large as all others together. The API server validates them.
var opaque = map[string]bool{"deploymentTemplate": true, "extraVolumes": true, "initContainers": true}

type schema = map[string]any

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: chartschema DIRECTORY-OF-DEFINITIONS FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "chartschema:", err)
		os.Exit(1)
	}
}

func run(directory, file string) error {
	definitions := schema{}
	for _, resource := range []string{"rootshards", "shards", "cacheservers", "frontproxies", "virtualworkspaces", "kubeconfigs", "backupstores", "backupschedules"} {
		spec, err := readSpec(directory, resource)
		if err != nil {
			return err
		}
		definitions[resource] = spec
	}
	text, err := json.MarshalIndent(values(definitions), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// readSpec returns the schema of the spec of a resource. Fields that the chart fills in are optional.
func readSpec(directory, resource string) (schema, error) {
	file := filepath.Join(directory, "operator.kcp.io_"+resource+".yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, crd); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	spec, ok := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	if !ok {
		return nil, fmt.Errorf("%s: has no spec", file)
	}
	converted := convert(&spec)
	delete(converted, "required")
	if resource == "rootshards" {
		delete(converted["properties"].(schema)["external"].(schema), "required")
	}
	// Not null: as the value of a name it would mean the defaults, where Helm's users expect that it removes the name.
	return converted, nil
}

// convert returns the schema in the vocabulary of JSON schema. The API server validates rules in CEL.
func convert(s *apiextensionsv1.JSONSchemaProps) schema {
	converted := schema{}
	if s.Type != "" {
		converted["type"] = s.Type
	}
	if s.XIntOrString {
		converted["type"] = []string{"integer", "string"}
	}
	set := func(key string, present bool, value any) {
		if present {
			converted[key] = value
		}
	}
	set("description", s.Description != "", s.Description)
	set("pattern", s.Pattern != "", s.Pattern)
	set("minLength", s.MinLength != nil, s.MinLength)
	set("maxLength", s.MaxLength != nil, s.MaxLength)
	set("minimum", s.Minimum != nil, s.Minimum)
	set("maximum", s.Maximum != nil, s.Maximum)
	set("minItems", s.MinItems != nil, s.MinItems)
	set("maxItems", s.MaxItems != nil, s.MaxItems)
	set("required", len(s.Required) > 0, s.Required)
	set("enum", len(s.Enum) > 0, s.Enum)
	if s.Items != nil && s.Items.Schema != nil {
		converted["items"] = convert(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		converted["additionalProperties"] = convert(s.AdditionalProperties.Schema)
	}
	if len(s.Properties) == 0 {
		return converted
	}
	properties := schema{}
	for name, property := range s.Properties {
		if opaque[name] {
			properties[name] = schema{"type": property.Type, "description": property.Description}
			continue
		}
		properties[name] = convert(&property)
	}
	converted["properties"] = properties
	if s.XPreserveUnknownFields == nil {
		converted["additionalProperties"] = false
	}
	return converted
}

// values returns the schema of the values of the chart.
func values(definitions schema) schema {
	strings := schema{"type": "object", "additionalProperties": schema{"type": "string"}}
	image := schema{"type": "object", "additionalProperties": false, "properties": schema{
		"repository": schema{"type": "string"}, "tag": schema{"type": "string"},
		"imagePullSecrets": schema{"type": "array", "items": schema{"type": "object", "required": []string{"name"}, "properties": schema{"name": schema{"type": "string"}}}},
	}}
	subjects := schema{"type": "array", "items": schema{"type": "object", "additionalProperties": false, "required": []string{"kind", "name"}, "properties": schema{
		"kind": schema{"enum": []string{"ServiceAccount", "User", "Group"}}, "name": schema{"type": "string", "minLength": 1},
		"namespace": schema{"type": "string"}, "apiGroup": schema{"type": "string"},
	}}}
	properties := schema{
		"externalHostname": schema{"type": "string"},
		"externalPort":     schema{"type": "integer", "minimum": 1, "maximum": 65535},
		"image":            image,
		"issuerRef": schema{"type": "object", "additionalProperties": false, "properties": schema{
			"name": schema{"type": "string"}, "kind": schema{"type": "string"}, "group": schema{"type": "string"},
		}},
		"console": schema{"type": "object", "additionalProperties": false, "properties": schema{"subjects": subjects}},
		"labels":  strings, "annotations": strings, "global": schema{"type": "object"},
		"enabled": schema{"type": "boolean", "description": "For charts that have this one as a dependency with a condition."},
		"rootShard": schema{"type": "object", "additionalProperties": false, "required": []string{"name"}, "properties": schema{
			"name": schema{"type": "string", "minLength": 1}, "spec": reference("rootshards"),
		}},
	}
	for key, resource := range map[string]string{
		"shards": "shards", "cacheServers": "cacheservers", "frontProxies": "frontproxies", "virtualWorkspaces": "virtualworkspaces", "kubeconfigs": "kubeconfigs", "backupStores": "backupstores",
		"backupSchedules": "backupschedules",
	} {
		properties[key] = schema{"type": "object", "additionalProperties": reference(resource), "propertyNames": schema{"pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}}
	}
	// The API server demands the same: names of Backups are longer, by the time.
	properties["backupSchedules"].(schema)["propertyNames"].(schema)["maxLength"] = 35
	return schema{
		"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false, "required": []string{"rootShard"}, "properties": properties, "definitions": definitions,
	}
}

func reference(resource string) schema { return schema{"$ref": "#/definitions/" + resource} }
