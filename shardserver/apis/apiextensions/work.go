package apiextensions

import (
	"context"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/atoll-dev/atoll/internal/crdpaths"
	"github.com/atoll-dev/atoll/internal/crdschema"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// validateWork refuses JSON paths that would not be evaluated, and schemas whose evaluation has no small bound, unless the stored definition has them; old is nil when a definition is
// created. Definitions in system:bound-crds are not checked: a schema that was stored before stays bindable, and its refused paths
// are not evaluated.
func validateWork(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	definition, ok := obj.(*apiextensions.CustomResourceDefinition)
	if cluster, _ := logicalcluster.From(ctx); !ok || cluster == logicalcluster.BoundCRDs {
		return nil
	}
	var columns, fields crdpaths.Stored
	before, _ := old.(*apiextensions.CustomResourceDefinition)
	if before != nil {
		for i := range before.Spec.Versions {
			columns.Add(columnPaths(before, i))
			fields.Add(fieldPaths(before, i))
		}
	}
	errs := crdschema.Validate(definition, before, crdschema.MaxWork)
	versions := field.NewPath("spec", "versions")
	for i := range definition.Spec.Versions {
		at := versions.Index(i)
		errs = append(errs, crdpaths.Default.ValidateColumns(columnPaths(definition, i), columns, at.Child("additionalPrinterColumns"))...)
		errs = append(errs, crdpaths.Default.ValidateFields(fieldPaths(definition, i), fields, at.Child("selectableFields"))...)
	}
	return errs
}

// columnPaths returns the JSON paths of the columns of one version. The internal type has columns that are the same in all versions
// once.
func columnPaths(definition *apiextensions.CustomResourceDefinition, version int) []string {
	columns := definition.Spec.Versions[version].AdditionalPrinterColumns
	if len(definition.Spec.AdditionalPrinterColumns) > 0 {
		columns = definition.Spec.AdditionalPrinterColumns
	}
	paths := make([]string, len(columns))
	for i := range columns {
		paths[i] = columns[i].JSONPath
	}
	return paths
}

// fieldPaths returns the JSON paths of the selectable fields of one version.
func fieldPaths(definition *apiextensions.CustomResourceDefinition, version int) []string {
	fields := definition.Spec.Versions[version].SelectableFields
	if len(definition.Spec.SelectableFields) > 0 {
		fields = definition.Spec.SelectableFields
	}
	paths := make([]string, len(fields))
	for i := range fields {
		paths[i] = fields[i].JSONPath
	}
	return paths
}
