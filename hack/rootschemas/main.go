// Command rootschemas writes the APIResourceSchemas of root's exports, one for each resource that package rootapis
// lists, from the CustomResourceDefinitions of kcp's kinds. It removes files that no resource needs.
//
//	rootschemas DEFINITIONS OUTPUT
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/bootstrap/rootapis"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: rootschemas DEFINITIONS OUTPUT")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(definitions, output string) error {
	written := map[string]bool{}
	for _, export := range rootapis.Exports() {
		for _, resource := range export.Resources {
			file := filepath.Join(output, resource.FileName())
			if err := writeSchema(filepath.Join(definitions, resource.Group+"_"+resource.Resource+".yaml"), file, resource.SchemaName()); err != nil {
				return fmt.Errorf("writing the schema of %s: %w", resource, err)
			}
			written[file] = true
		}
	}
	files, err := filepath.Glob(filepath.Join(output, "*.yaml"))
	if err != nil {
		return fmt.Errorf("listing %s: %w", output, err)
	}
	for _, file := range files {
		if written[file] {
			continue
		}
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return nil
}

func writeSchema(from, to, name string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, definition); err != nil {
		return fmt.Errorf("reading %s: %w", from, err)
	}
	schema, err := newAPIResourceSchema(definition)
	if err != nil {
		return err
	}
	schema.Name = name
	if text, err = yaml.Marshal(schema); err != nil {
		return err
	}
	return os.WriteFile(to, append([]byte("---\n"), text...), 0o644)
}

// newAPIResourceSchema converts a definition to an APIResourceSchema.
func newAPIResourceSchema(definition *apiextensionsv1.CustomResourceDefinition) (*apisv1alpha1.APIResourceSchema, error) {
	schema := &apisv1alpha1.APIResourceSchema{
		TypeMeta: metav1.TypeMeta{APIVersion: apisv1alpha1.SchemeGroupVersion.String(), Kind: "APIResourceSchema"},
		Spec: apisv1alpha1.APIResourceSchemaSpec{
			Group: definition.Spec.Group, Names: definition.Spec.Names, Scope: definition.Spec.Scope,
			NameValidation: apisv1alpha1.NameValidationDNS1123Subdomain,
		},
	}
	for _, version := range definition.Spec.Versions {
		openAPISchema, err := json.Marshal(version.Schema.OpenAPIV3Schema)
		if err != nil {
			return nil, fmt.Errorf("version %s: %w", version.Name, err)
		}
		converted := apisv1alpha1.APIResourceVersion{
			Name: version.Name, Served: version.Served, Storage: version.Storage,
			Deprecated: version.Deprecated, DeprecationWarning: version.DeprecationWarning,
			Schema:                   runtime.RawExtension{Raw: openAPISchema},
			AdditionalPrinterColumns: version.AdditionalPrinterColumns,
			SelectableFields:         version.SelectableFields,
		}
		if version.Subresources != nil {
			converted.Subresources = *version.Subresources
		}
		schema.Spec.Versions = append(schema.Spec.Versions, converted)
	}
	return schema, nil
}
