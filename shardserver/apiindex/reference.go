package apiindex

import (
	"slices"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Reference names an export by workspace path or logical cluster, as bindings and endpoint slices do.
type Reference struct {
	// Path is the workspace path or the name of the export's logical cluster.
	Path logicalcluster.Path
	Name string
}

// String returns "<path>:<name>".
func (r Reference) String() string { return r.Path.String() + ":" + r.Name }

// ReferenceOf returns the reference of a binding. It fails if the binding names no export or an invalid path.
func ReferenceOf(binding *apisv1alpha2.APIBinding) (Reference, error) {
	export := binding.Spec.Reference.Export
	if export == nil {
		return Reference{}, errNoReference
	}
	return NewReference(logicalcluster.Of(binding), export.Path, export.Name)
}

// ReferenceOfSlice returns the reference of an endpoint slice. It fails like ReferenceOf.
func ReferenceOfSlice(slice *apisv1alpha1.APIExportEndpointSlice) (Reference, error) {
	return NewReference(logicalcluster.Of(slice), slice.Spec.APIExport.Path, slice.Spec.APIExport.Name)
}

// NewReference returns the reference of an object in the logical cluster own. An empty path means own.
func NewReference(own logicalcluster.Name, path, name string) (Reference, error) {
	if name == "" {
		return Reference{}, errNoReference
	}
	if path == "" {
		return Reference{own.Path(), name}, nil
	}
	parsed, err := logicalcluster.ParsePath(path)
	if err != nil {
		return Reference{}, err
	}
	if parsed == logicalcluster.Wildcard.Path() {
		return Reference{}, errNoReference
	}
	return Reference{parsed, name}, nil
}

// RefersTo reports whether a reference resolves to an export.
func (r Reference) RefersTo(export *apisv1alpha2.APIExport) bool {
	return slices.Contains(referencesTo(export), r)
}

// referencesTo returns all references that resolve to an export: by logical cluster and, last, by canonical path.
func referencesTo(export *apisv1alpha2.APIExport) []Reference {
	cluster := logicalcluster.Of(export).Path()
	all := []Reference{{cluster, export.Name}}
	if path, err := logicalcluster.ParsePath(export.Annotations[logicalcluster.PathAnnotationKey]); err == nil && path != cluster {
		all = append(all, Reference{path, export.Name})
	}
	return all
}
