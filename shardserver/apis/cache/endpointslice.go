package cache

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

var slices = &registry.Kind[*cachev1alpha1.ClusterCachedResourceEndpointSlice]{
	Resource: cachev1alpha1.SchemeGroupVersion.WithResource("clustercachedresourceendpointslices"),
	Singular: "clustercachedresourceendpointslice",

	New: func() *cachev1alpha1.ClusterCachedResourceEndpointSlice {
		return &cachev1alpha1.ClusterCachedResourceEndpointSlice{}
	},
	NewList:    func() runtime.Object { return &cachev1alpha1.ClusterCachedResourceEndpointSliceList{} },
	CopySpec:   func(to, from *cachev1alpha1.ClusterCachedResourceEndpointSlice) { to.Spec = from.Spec },
	CopyStatus: func(to, from *cachev1alpha1.ClusterCachedResourceEndpointSlice) { to.Status = from.Status },
	SameSpec: func(a, b *cachev1alpha1.ClusterCachedResourceEndpointSlice) bool {
		// What consumers see is desired state as well, so it is validated.
		const selector = cachev1alpha1.LabelSelectorAnnotationKey
		return equality.Semantic.DeepEqual(a.Spec, b.Spec) && a.Annotations[selector] == b.Annotations[selector]
	},
	SameStatus: func(a, b *cachev1alpha1.ClusterCachedResourceEndpointSlice) bool {
		return equality.Semantic.DeepEqual(a.Status, b.Status)
	},

	ValidateName:       validateName,
	ValidateSpec:       validateSliceSpec,
	ValidateStatus:     validateSliceStatus,
	ValidateTransition: validateSliceTransition,

	Columns: registry.Columns{registry.Column("ClusterCachedResource", ".spec.clusterCachedResource.name"), registry.Age},
}

func validateSliceSpec(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) field.ErrorList {
	path := field.NewPath("spec")
	resource, export := slice.Spec.ClusterCachedResource, slice.Spec.APIExport
	errs := registry.ValidateRequired(resource.Name, path.Child("clusterCachedResource", "name"))
	errs = append(errs, registry.ValidatePattern(resource.Path, pathPattern, path.Child("clusterCachedResource", "path"))...)
	if value, ok := slice.Annotations[cachev1alpha1.LabelSelectorAnnotationKey]; ok {
		if _, err := labels.Parse(value); err != nil { // which would leave objects visible that somebody wanted to hide
			errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations").Key(cachev1alpha1.LabelSelectorAnnotationKey), value, err.Error()))
		}
	}
	// Go clients send an export without a name if they set none. A condition reports it.
	return append(errs, registry.ValidatePattern(export.Path, pathPattern, path.Child("export", "path"))...)
}

// validateSliceTransition checks that references of the slice do not change.
func validateSliceTransition(slice, old *cachev1alpha1.ClusterCachedResourceEndpointSlice) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if slice.Spec.ClusterCachedResource != old.Spec.ClusterCachedResource {
		errs = append(errs, field.Invalid(path.Child("clusterCachedResource"), slice.Spec.ClusterCachedResource, "ClusterCachedResource reference must not be changed"))
	}
	if slice.Spec.APIExport != old.Spec.APIExport {
		errs = append(errs, field.Invalid(path.Child("export"), slice.Spec.APIExport, "APIExport reference must not be changed"))
	}
	return errs
}

func validateSliceStatus(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) field.ErrorList {
	path := field.NewPath("status")
	errs := registry.ValidateConditions(slice.Status.Conditions, path.Child("conditions"))
	seen := sets.New[string]()
	for i, endpoint := range slice.Status.Endpoints {
		at := path.Child("endpoints").Index(i)
		errs = append(errs, registry.ValidateRequired(endpoint.URL, at.Child("url"))...)
		if seen.Has(endpoint.URL) {
			errs = append(errs, field.Duplicate(at.Child("url"), endpoint.URL))
		}
		seen.Insert(endpoint.URL)
		if shards := endpoint.Shards; shards != nil {
			if shards.MatchAll && shards.Selector != nil {
				errs = append(errs, field.Invalid(at.Child("shards"), "", "either matchAll or selector must be set"))
			}
			errs = append(errs, registry.ValidateSelector(shards.Selector, at.Child("shards", "selector"))...)
		}
	}
	return errs
}
