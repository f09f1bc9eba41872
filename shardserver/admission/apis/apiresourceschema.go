package apis

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/internal/crdschema"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	ownapiextensions "github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	"github.com/atoll-dev/atoll/shardserver/apis/apis"
)

var schemaPrefix = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)

const (
	// coreGroup replaces the empty group in names of schemas.
	coreGroup = "core"
	// anyGroup replaces a group that definitions may not have.
	anyGroup = "any.group"
)

// apiResourceSchema validates that a definition can be derived from a schema, that the schema is named after the
// resource, that its spec is immutable, because bindings refer to it by UID, and that an export that names it keeps scope and
// kind of the resource.
type apiResourceSchema struct {
	*admission.Handler
	served servedKinds
}

// NewAPIResourceSchema returns the plug-in tenancy.kcp.io/APIResourceSchema.
func NewAPIResourceSchema(config rules.Config) admission.Interface {
	return apiResourceSchema{admission.NewHandler(admission.Create, admission.Update), servedKinds{config.Exports}}
}

// Validate implements admission.ValidationInterface.
func (s apiResourceSchema) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != rules.APIResourceSchemas || a.GetSubresource() != "" {
		return nil
	}
	if a.GetOperation() == admission.Update {
		schema, old, err := rules.ObjectsOf[*apisv1alpha1.APIResourceSchema](a)
		if err == nil && !apis.EqualSchemaSpec(schema.Spec, old.Spec) {
			return rules.Forbid(a, "spec: Invalid value: field is immutable")
		}
		return err
	}
	schema, err := rules.ObjectOf[*apisv1alpha1.APIResourceSchema](a.GetObject())
	if err != nil {
		return err
	}
	if errs := validateSchema(ctx, schema); len(errs) > 0 {
		return rules.Forbid(a, "%w", errs.ToAggregate())
	}
	errs, err := s.served.validateSchema(ctx, schema)
	if err != nil {
		return err
	}
	if len(errs) > 0 {
		return rules.Forbid(a, "%w", errs.ToAggregate())
	}
	return nil
}

func validateSchema(ctx context.Context, schema *apisv1alpha1.APIResourceSchema) field.ErrorList {
	errs := validateSchemaName(schema)
	errs = append(errs, validateSchemaGroup(schema.Spec.Group, field.NewPath("spec", "group"))...)
	definition, err := DefinitionOf(schema)
	if err != nil {
		return append(errs, field.Invalid(field.NewPath("spec"), schema.Name, err.Error()))
	}
	errs = append(errs, crdschema.Validate(definition, nil, crdschema.MaxWork)...)
	return append(errs, apiextensionsvalidation.ValidateCustomResourceDefinition(ctx, definition)...)
}

// validateSchemaName requires "<prefix>.<plural>.<group or core>".
func validateSchemaName(schema *apisv1alpha1.APIResourceSchema) field.ErrorList {
	path := field.NewPath("metadata", "name")
	prefix, ok := strings.CutSuffix(schema.Name, schemaSuffix(schema.Spec.Names.Plural, schema.Spec.Group))
	switch {
	case !ok:
		return field.ErrorList{field.Invalid(path, schema.Name, "must end in "+schemaSuffix(schema.Spec.Names.Plural, schema.Spec.Group))}
	case !schemaPrefix.MatchString(prefix):
		return field.ErrorList{field.Invalid(path, schema.Name, fmt.Sprintf("%q must match %s", prefix, schemaPrefix))}
	}
	return nil
}

// schemaSuffix returns the suffix of the names of a resource's schemas.
func schemaSuffix(resource, group string) string {
	if group == "" {
		group = coreGroup
	}
	return "." + resource + "." + group
}

// validateSchemaGroup refuses groups that resources cannot have, in addition to the validation of definitions.
func validateSchemaGroup(group string, path *field.Path) field.ErrorList {
	if group == coreGroup {
		return field.ErrorList{field.Invalid(path, group, `must be "" for the core group`)}
	}
	return nil
}

// DefinitionOf returns the definition that serves the schema, independent of the logical cluster. Its group may differ:
// some groups are valid in schemas but not in definitions.
func DefinitionOf(schema *apisv1alpha1.APIResourceSchema) (*apiextensions.CustomResourceDefinition, error) {
	served, err := apiindex.BoundCRD(schema)
	if err != nil {
		return nil, err
	}
	if group := served.Spec.Group; group == "" || group == coreGroup || ownapiextensions.IsGroupWithoutDot(group) {
		served.Spec.Group = anyGroup
	}
	served.Name = served.Spec.Names.Plural + "." + served.Spec.Group
	if storage := apiindex.StorageVersion(schema); storage != "" {
		served.Status.StoredVersions = []string{storage}
	}
	var definition apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(served, &definition, nil); err != nil {
		return nil, fmt.Errorf("making a definition of it: %w", err)
	}
	return &definition, nil
}
