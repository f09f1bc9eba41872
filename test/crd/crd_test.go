// Package crd_test runs the generated definitions of operator.kcp.io through the code of a Kubernetes API server: the
// validation of a definition, and the processing of a manifest of its kind.
package crd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// maxAnnotations is the limit of an API server for all annotations of an object. A plain `kubectl apply` stores the
// whole manifest in one of them.
const maxAnnotations = 256 * 1024

// definition is one CustomResourceDefinition, prepared to process manifests.
type definition struct {
	raw        []byte // YAML as generated
	internal   *apiextensions.CustomResourceDefinition
	structural *schema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

// load reads the generated definition of each kind.
func load(t *testing.T) map[string]*definition {
	t.Helper()
	files, err := filepath.Glob("../../config/crd/bases/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions in config/crd/bases (%v); run hack/generate.sh", err)
	}
	out := map[string]*definition{}
	for _, file := range files {
		d, err := read(file)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out[d.internal.Spec.Names.Kind] = d
	}
	return out
}

func read(file string) (*definition, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var v1 apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(raw, &v1); err != nil {
		return nil, err
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&v1)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&v1.Spec)
	d := &definition{raw: raw, internal: &apiextensions.CustomResourceDefinition{}}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&v1, d.internal, nil); err != nil {
		return nil, err
	}
	d.internal.Status.StoredVersions = []string{v1.Spec.Versions[0].Name}
	// Conversion to the internal version moves the schema of a sole version to the top level.
	props := d.internal.Spec.Validation.OpenAPIV3Schema
	if d.structural, err = schema.NewStructural(props); err != nil {
		return nil, fmt.Errorf("structural schema: %w", err)
	}
	if d.validator, _, err = validation.NewSchemaValidator(props); err != nil {
		return nil, fmt.Errorf("schema validator: %w", err)
	}
	d.rules = cel.NewValidator(d.structural, true, celconfig.PerCallLimit)
	return d, nil
}

// admit processes a manifest as the API server does on create: prune, default, validate. It returns the object as it
// would be stored.
func (d *definition) admit(ctx context.Context, manifest string) (map[string]any, field.ErrorList) {
	object, err := decode(manifest)
	if err != nil {
		return nil, field.ErrorList{field.InternalError(nil, err)}
	}
	pruning.Prune(object, d.structural, true)
	defaulting.Default(object, d.structural)
	errs := validation.ValidateCustomResource(nil, object, d.validator)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, d.structural, object)...)
	if len(errs) == 0 && d.rules != nil { // as in the API server: rules require a structurally valid object
		var celErrs field.ErrorList
		celErrs, _ = d.rules.Validate(ctx, nil, d.structural, object, nil, celconfig.RuntimeCELCostBudget)
		errs = append(errs, celErrs...)
	}
	return object, errs
}

// decode decodes whole numbers as integers, which CEL rules require.
func decode(manifest string) (map[string]any, error) {
	document, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		return nil, err
	}
	var object map[string]any
	err = utiljson.Unmarshal(document, &object)
	return object, err
}

func TestDefinitionsAreValid(t *testing.T) {
	for kind, d := range load(t) {
		t.Run(kind, func(t *testing.T) {
			for _, err := range crdvalidation.ValidateCustomResourceDefinition(t.Context(), d.internal) {
				t.Error(err)
			}
		})
	}
}

func TestDefinitionsFitLastAppliedAnnotation(t *testing.T) {
	for kind, d := range load(t) {
		t.Run(kind, func(t *testing.T) {
			var object map[string]any
			if err := yaml.Unmarshal(d.raw, &object); err != nil {
				t.Fatal(err)
			}
			annotation, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			if len(annotation) > maxAnnotations-4096 { // leaves room for the other annotations
				t.Errorf("%d bytes as JSON do not fit into an annotation; lower max_description in hack/generate.sh", len(annotation))
			}
		})
	}
}

// TestNewObjectsAreNotReady: without a generation in the status, tools that use kstatus treat an object as ready that no controller has
// reconciled.
func TestNewObjectsAreNotReady(t *testing.T) {
	for kind, d := range load(t) {
		t.Run(kind, func(t *testing.T) {
			for name, object := range map[string]map[string]any{
				"no status":                     {},
				"a status without a generation": {"status": map[string]any{"phase": "Running"}},
			} {
				defaulting.Default(object, d.structural)
				if got, _, err := unstructured.NestedInt64(object, "status", "observedGeneration"); got != -1 || err != nil {
					t.Errorf("%s: observedGeneration %d (%v), want -1", name, got, err)
				}
			}
		})
	}
}
