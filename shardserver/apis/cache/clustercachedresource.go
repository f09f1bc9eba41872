package cache

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/apis/install"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

// omittedField is a path of fields. Elements of lists cannot be omitted.
var omittedField = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$-]*(\.[A-Za-z_$][A-Za-z0-9_$-]*)*$`)

var resources = &registry.Kind[*cachev1alpha1.ClusterCachedResource]{
	Resource: cachev1alpha1.SchemeGroupVersion.WithResource("clustercachedresources"),
	Singular: "clustercachedresource",

	New:        func() *cachev1alpha1.ClusterCachedResource { return &cachev1alpha1.ClusterCachedResource{} },
	NewList:    func() runtime.Object { return &cachev1alpha1.ClusterCachedResourceList{} },
	Default:    install.DefaultClusterCachedResource,
	CopySpec:   func(to, from *cachev1alpha1.ClusterCachedResource) { to.Spec = from.Spec },
	CopyStatus: func(to, from *cachev1alpha1.ClusterCachedResource) { to.Status = from.Status },
	SameSpec: func(a, b *cachev1alpha1.ClusterCachedResource) bool {
		// Omitted fields are desired state as well: a change makes a new generation, at which watches of consumers end.
		const omitted = cachev1alpha1.OmittedFieldsAnnotationKey
		return equality.Semantic.DeepEqual(a.Spec, b.Spec) && a.Annotations[omitted] == b.Annotations[omitted]
	},
	SameStatus: func(a, b *cachev1alpha1.ClusterCachedResource) bool {
		return equality.Semantic.DeepEqual(a.Status, b.Status)
	},

	ValidateName:   validateName,
	ValidateSpec:   validateResourceSpec,
	ValidateStatus: validateResourceStatus,

	Columns: registry.Columns{registry.Column("Resource", ".spec.resource"), registry.Age},
}

func validateResourceSpec(resource *cachev1alpha1.ClusterCachedResource) field.ErrorList {
	path := field.NewPath("spec")
	spec := resource.Spec
	errs := registry.ValidatePattern(spec.Group, groupPattern, path.Child("group"))
	errs = append(errs, registry.ValidateRequired(spec.Resource, path.Child("resource"))...)
	errs = append(errs, registry.ValidatePattern(spec.Resource, resourcePattern, path.Child("resource"))...)
	errs = append(errs, registry.ValidateSelector(spec.LabelSelector, path.Child("labelSelector"))...)
	return append(errs, validateOmittedFields(resource)...)
}

// validateOmittedFields refuses what would leave fields visible that the user wanted to omit.
func validateOmittedFields(resource *cachev1alpha1.ClusterCachedResource) field.ErrorList {
	value, ok := resource.Annotations[cachev1alpha1.OmittedFieldsAnnotationKey]
	if !ok {
		return nil
	}
	var errs field.ErrorList
	at := field.NewPath("metadata", "annotations").Key(cachev1alpha1.OmittedFieldsAnnotationKey)
	for path := range strings.SplitSeq(value, ",") {
		first, _, _ := strings.Cut(strings.TrimSpace(path), ".")
		switch {
		case !omittedField.MatchString(strings.TrimSpace(path)):
			errs = append(errs, field.Invalid(at, path, "must be names of fields, separated by dots, such as spec.internal"))
		case first == "apiVersion" || first == "kind" || first == "metadata":
			errs = append(errs, field.Invalid(at, path, "apiVersion, kind and metadata cannot be omitted"))
		}
	}
	return errs
}

func validateResourceStatus(resource *cachev1alpha1.ClusterCachedResource) field.ErrorList {
	path := field.NewPath("status")
	errs := registry.ValidateOneOf(resource.Status.Phase, []cachev1alpha1.ClusterCachedResourcePhaseType{
		cachev1alpha1.ClusterCachedResourcePhaseScheduling,
		cachev1alpha1.ClusterCachedResourcePhaseInitializing,
		cachev1alpha1.ClusterCachedResourcePhaseReady,
		cachev1alpha1.ClusterCachedResourcePhaseDeleting,
		cachev1alpha1.ClusterCachedResourcePhaseDeleted,
	}, path.Child("phase"))
	return append(errs, registry.ValidateConditions(resource.Status.Conditions, path.Child("conditions"))...)
}
