// Command crdnames adds rules to the CustomResourceDefinitions of kcp's kinds that no marker in the Go types can
// express: those for metadata.name, because the generator empties the metadata of every definition, and those for
// fields whose types are those of Kubernetes. It changes the files of a directory in place and leaves complete ones
// unchanged.
//
//	crdnames DIRECTORY
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// rule is the schema of one field, as YAML. It replaces the generated one.
type rule struct {
	// field is its path, "spec.selector"; every segment but the last must be in the generated schema.
	field, schema string
}

// rules are the rules by definition.
var rules = map[string]rule{
	"logicalclusters.core.kcp.io": {"metadata.name", `
type: string
enum: [cluster]
`},
	"workspaces.tenancy.kcp.io": {"metadata.name", `
type: string
minLength: 1
maxLength: 63
pattern: ^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$
`},
	"workspacetypes.tenancy.kcp.io": {"metadata.name", `
type: string
minLength: 1
maxLength: 63
pattern: ^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$
not:
  enum: [system, any]
`},
	"partitionsets.topology.kcp.io": {"spec.shardSelector", `
description: |-
  shardSelector selects the shards that are divided. Without it, all are.
type: object
x-kubernetes-map-type: atomic
properties:
  matchExpressions:
    description: matchExpressions are requirements that must all be met.
    type: array
    maxItems: 10
    x-kubernetes-list-type: atomic
    items:
      description: A requirement that a label of a shard must meet.
      type: object
      required: [key, operator]
      properties:
        key:
          description: key is the label key.
          type: string
          maxLength: 317
          x-kubernetes-validations:
          - rule: self.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')
            message: key must be a label key, with or without a prefix
        operator:
          description: operator relates the label to the values.
          type: string
          enum: [In, NotIn, Exists, DoesNotExist]
        values:
          description: values are compared by In and NotIn, which need some; Exists and DoesNotExist take none.
          type: array
          x-kubernetes-list-type: atomic
          items:
            type: string
            maxLength: 63
            pattern: ^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$
      x-kubernetes-validations:
      - rule: "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || size(self.values) == 0"
        message: In and NotIn need values, Exists and DoesNotExist take none
  matchLabels:
    description: matchLabels are labels that a shard must have.
    type: object
    maxProperties: 10
    additionalProperties:
      type: string
      maxLength: 380
    x-kubernetes-validations:
    - rule: self.all(key, size(key) <= 317 && key.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))
      message: keys must be label keys, with or without a prefix
    - rule: self.all(key, self[key].matches('^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))
      message: values must be label values
`},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: crdnames DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return fmt.Errorf("listing %s: %w", dir, err)
	}
	missing := len(rules)
	for _, file := range files {
		found, err := applyRule(file)
		if err != nil {
			return fmt.Errorf("completing %s: %w", file, err)
		}
		if found {
			missing--
		}
	}
	if missing != 0 {
		return fmt.Errorf("%d of the %d definitions that have a rule are not in %s", missing, len(rules), dir)
	}
	return nil
}

// applyRule adds the rule of a definition to all its versions, and reports whether it has one.
func applyRule(file string) (bool, error) {
	before, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	// Untyped, so that the output contains only fields that the generator wrote.
	var definition map[string]any
	if err := yaml.Unmarshal(before, &definition); err != nil {
		return false, err
	}
	var typed apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(before, &typed); err != nil {
		return false, err
	}
	rule, ok := rules[typed.Name]
	if !ok {
		return false, nil
	}
	var field map[string]any
	if err := yaml.Unmarshal([]byte(rule.schema), &field); err != nil {
		return false, fmt.Errorf("reading the rule: %w", err)
	}
	for _, version := range definition["spec"].(map[string]any)["versions"].([]any) {
		schema := version.(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
		segments := strings.Split(rule.field, ".")
		for _, segment := range segments[:len(segments)-1] {
			schema = schema["properties"].(map[string]any)[segment].(map[string]any)
		}
		if _, ok := schema["properties"]; !ok {
			schema["properties"] = map[string]any{}
		}
		schema["properties"].(map[string]any)[segments[len(segments)-1]] = field
	}
	after, err := yaml.Marshal(definition)
	if err != nil {
		return false, err
	}
	after = append([]byte("---\n"), after...)
	if bytes.Equal(before, after) {
		return true, nil
	}
	return true, os.WriteFile(file, after, 0o644)
}
