// Package crdpaths bounds the work of the JSON paths in definitions of custom resources: tenants write them, and servers evaluate them for
// each row of a table and each object that is stored. Stock evaluation has no bound, because definitions of a cluster are written by
// its administrators.
//
// An accepted path visits each field of an object a limited number of times, so that its work is a constant times the size of the object.
package crdpaths

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of the paths of one version of a definition.
type Limits struct {
	// Columns is the number of printer columns.
	Columns int
	// PathBytes is the length of a JSON path.
	PathBytes int
	// Visits is how often the path of one column may visit one field of an object.
	Visits int
	// RowBytes is the length of all texts in a row of a table.
	RowBytes int
}

// Default is several times as high as the needs of known definitions.
var Default = Limits{Columns: 64, PathBytes: 1024, Visits: 64, RowBytes: 16 << 10}

// Stored contains the paths that an update of a definition may keep, although they exceed the limits.
type Stored struct {
	paths sets.Set[string]
	most  int
}

// Add adds the JSON paths of one version of the stored definition.
func (s *Stored) Add(paths []string) {
	if s.paths == nil {
		s.paths = sets.New[string]()
	}
	s.paths.Insert(paths...)
	s.most = max(s.most, len(paths))
}

// ValidateColumns returns errors for the JSON paths of the printer columns of one version, which are at this path of the definition. It
// accepts the stored columns of any version.
func (l Limits) ValidateColumns(paths []string, stored Stored, at *field.Path) field.ErrorList {
	if len(paths) > max(l.Columns, stored.most) {
		return field.ErrorList{field.TooMany(at, len(paths), l.Columns)}
	}
	return l.validate(paths, stored, at, l.checkColumn)
}

// ValidateFields returns errors for the JSON paths of the selectable fields of one version. Stock validation limits their number.
func (l Limits) ValidateFields(paths []string, stored Stored, at *field.Path) field.ErrorList {
	return l.validate(paths, stored, at, l.checkField)
}

func (l Limits) validate(paths []string, stored Stored, at *field.Path, check func(string) error) field.ErrorList {
	var errs field.ErrorList
	for i, path := range paths {
		if stored.paths.Has(path) {
			continue
		}
		if err := check(path); err != nil {
			errs = append(errs, field.Invalid(at.Index(i).Child("jsonPath"), l.shorten(path), err.Error()))
		}
	}
	return errs
}

// shorten returns the beginning of a path, so that an error does not repeat a long path.
func (l Limits) shorten(path string) string {
	if len(path) > l.PathBytes {
		return path[:l.PathBytes] + "..."
	}
	return path
}

// noField is the path of a field that no object has, because an API version is a string.
const noField = ".apiVersion.none"

// Evaluated returns a definition that the stock handler may serve. The definition was stored before its paths were refused, or comes from
// another shard: cells of refused columns are empty, columns beyond the limit and refused selectable fields are left out. Evaluated does
// not modify the argument; the result shares the other parts with it.
func (l Limits) Evaluated(definition *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	result := *definition
	result.Spec.Versions = slices.Clone(definition.Spec.Versions)
	for i := range result.Spec.Versions {
		version := &result.Spec.Versions[i]
		columns := version.AdditionalPrinterColumns
		version.AdditionalPrinterColumns = slices.Clone(columns[:min(len(columns), l.Columns)])
		for j := range version.AdditionalPrinterColumns {
			l.blank(&version.AdditionalPrinterColumns[j])
		}
		version.SelectableFields = l.evaluatedFields(version.SelectableFields)
	}
	return &result
}

// blank replaces the path of a refused column.
func (l Limits) blank(column *apiextensionsv1.CustomResourceColumnDefinition) {
	err := l.checkColumn(column.JSONPath)
	if err == nil {
		return
	}
	column.JSONPath = noField
	if column.Description == "" {
		column.Description = fmt.Sprintf("Not evaluated: the JSON path %s", err)
	}
}

// Accepted removes the paths that servers do not accept from the versions of a definition.
func (l Limits) Accepted(versions []apiextensionsv1.CustomResourceDefinitionVersion) {
	for i := range versions {
		version := &versions[i]
		var columns []apiextensionsv1.CustomResourceColumnDefinition
		for _, column := range version.AdditionalPrinterColumns {
			if len(columns) < l.Columns && l.checkColumn(column.JSONPath) == nil {
				columns = append(columns, column)
			}
		}
		version.AdditionalPrinterColumns = columns
		version.SelectableFields = l.evaluatedFields(version.SelectableFields)
	}
}

func (l Limits) evaluatedFields(all []apiextensionsv1.SelectableField) []apiextensionsv1.SelectableField {
	var fields []apiextensionsv1.SelectableField
	for _, selectable := range all {
		if l.checkField(selectable.JSONPath) == nil {
			fields = append(fields, selectable)
		}
	}
	return fields
}
