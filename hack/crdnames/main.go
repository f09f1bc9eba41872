// Command crdnames adds the rules for metadata.name to the CustomResourceDefinitions of kcp's own kinds. The generator
// empties the metadata of every definition, so no marker in the Go types can state them. It changes the files of a
// directory in place and leaves alone what is complete.
//
//	crdnames DIRECTORY
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// rules are the schemas of metadata.name by definition, as YAML.
var rules = map[string]string{
	"logicalclusters.core.kcp.io": `
type: string
enum: [cluster]
`,
	"workspaces.tenancy.kcp.io": `
type: string
minLength: 1
maxLength: 63
pattern: ^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$
`,
	"workspacetypes.tenancy.kcp.io": `
type: string
minLength: 1
maxLength: 63
pattern: ^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$
not:
  enum: [system, any]
`,
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
		found, err := complete(file)
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

// complete adds the rule of a definition to all its versions, and tells whether there is one.
func complete(file string) (bool, error) {
	before, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	// Untyped, so that nothing is written that the generator did not write.
	var definition map[string]any
	if err := yaml.Unmarshal(before, &definition); err != nil {
		return false, err
	}
	var typed apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(before, &typed); err != nil {
		return false, err
	}
	text, ok := rules[typed.Name]
	if !ok {
		return false, nil
	}
	var rule map[string]any
	if err := yaml.Unmarshal([]byte(text), &rule); err != nil {
		return false, fmt.Errorf("reading the rule: %w", err)
	}
	for _, version := range definition["spec"].(map[string]any)["versions"].([]any) {
		schema := version.(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
		metadata := schema["properties"].(map[string]any)["metadata"].(map[string]any)
		metadata["properties"] = map[string]any{"name": rule}
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
