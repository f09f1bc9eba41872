package apis

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

var apiExportEndpointSlices = &registry.Kind[*apisv1alpha1.APIExportEndpointSlice]{
	Resource: apisv1alpha1.SchemeGroupVersion.WithResource("apiexportendpointslices"),
	Singular: "apiexportendpointslice",

	New:        func() *apisv1alpha1.APIExportEndpointSlice { return &apisv1alpha1.APIExportEndpointSlice{} },
	NewList:    func() runtime.Object { return &apisv1alpha1.APIExportEndpointSliceList{} },
	CopySpec:   func(to, from *apisv1alpha1.APIExportEndpointSlice) { to.Spec = from.Spec },
	CopyStatus: func(to, from *apisv1alpha1.APIExportEndpointSlice) { to.Status = from.Status },
	SameSpec:   func(a, b *apisv1alpha1.APIExportEndpointSlice) bool { return a.Spec == b.Spec },
	SameStatus: func(a, b *apisv1alpha1.APIExportEndpointSlice) bool {
		return equality.Semantic.DeepEqual(a.Status, b.Status)
	},

	ValidateName:       validateName,
	ValidateSpec:       validateSliceSpec,
	ValidateStatus:     validateSliceStatus,
	ValidateTransition: validateSliceTransition,

	Columns: registry.Columns{registry.Column("Export", ".spec.export.name"), registry.Column("Partition", ".spec.partition"), registry.Age},
}

func validateSliceSpec(slice *apisv1alpha1.APIExportEndpointSlice) field.ErrorList {
	export := apisv1alpha2.ExportBindingReference(slice.Spec.APIExport)
	return validateReference(&export, field.NewPath("spec", "export"))
}

func validateSliceTransition(slice, old *apisv1alpha1.APIExportEndpointSlice) field.ErrorList {
	if slice.Spec.APIExport == old.Spec.APIExport {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec", "export"), slice.Spec.APIExport, "APIExport reference must not be changed")}
}

func validateSliceStatus(slice *apisv1alpha1.APIExportEndpointSlice) field.ErrorList {
	path := field.NewPath("status")
	errs := registry.ValidateConditions(slice.Status.Conditions, path.Child("conditions"))
	for i, endpoint := range slice.Status.APIExportEndpoints {
		at := path.Child("endpoints").Index(i)
		errs = append(errs, registry.ValidateRequired(endpoint.URL, at.Child("url"))...)
		if shards := endpoint.Shards; shards != nil && shards.Selector != nil {
			if shards.MatchAll {
				errs = append(errs, field.Invalid(at.Child("shards"), "", "matchAll and selector are mutually exclusive"))
			}
			errs = append(errs, registry.ValidateSelector(shards.Selector, at.Child("shards", "selector"))...)
		}
	}
	return append(errs, validateUnique(slice.Status.APIExportEndpoints, func(endpoint apisv1alpha1.APIExportEndpoint) string { return endpoint.URL }, path.Child("endpoints"))...)
}
