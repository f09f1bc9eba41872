package versions

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Validator validates the spec of instances like a server that has the schema.
type Validator struct {
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator // nil if there are none
}

// NewValidator returns a validator for a schema of spec.
func NewValidator(schema *apiextensionsv1.JSONSchemaProps) (*Validator, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, internal, nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	compiled, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return nil, fmt.Errorf("compiling the schema: %w", err)
	}
	return &Validator{structural, compiled, cel.NewValidator(structural, false, celconfig.PerCallLimit)}, nil
}

// Validate returns what is wrong with an instance, each reason once and without its values.
func (v *Validator) Validate(ctx context.Context, object *unstructured.Unstructured) []string {
	spec, _, err := unstructured.NestedMap(object.Object, "spec") // a copy
	if err != nil {
		return []string{"spec: is not an object"}
	}
	if spec == nil {
		spec = map[string]any{}
	}
	path := field.NewPath("spec")
	defaulting.Default(spec, v.structural)
	errs := validation.ValidateCustomResource(path, spec, v.schema)
	errs = append(errs, listtype.ValidateListSetsAndMaps(path, v.structural, spec)...)
	if v.rules != nil && len(errs) == 0 { // rules may rely on types
		found, _ := v.rules.Validate(ctx, path, v.structural, spec, nil, celconfig.RuntimeCELCostBudget)
		errs = append(errs, found...)
	}
	reasons := sets.New[string]()
	for _, err := range errs {
		reasons.Insert(fmt.Sprintf("%s: %s: %s", err.Field, err.Type, err.Detail))
	}
	return sets.List(reasons)
}
