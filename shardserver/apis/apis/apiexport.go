package apis

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/internal/subresources"
	"github.com/atoll-dev/atoll/shardserver/apis/install"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

var apiExports = &registry.Kind[*apisv1alpha2.APIExport]{
	Resource:      apisv1alpha2.SchemeGroupVersion.WithResource("apiexports"),
	OtherVersions: []string{apisv1alpha1.SchemeGroupVersion.Version},
	Singular:      "apiexport",

	New:        func() *apisv1alpha2.APIExport { return &apisv1alpha2.APIExport{} },
	NewList:    func() runtime.Object { return &apisv1alpha2.APIExportList{} },
	Default:    install.DefaultAPIExport,
	CopySpec:   func(to, from *apisv1alpha2.APIExport) { to.Spec = from.Spec },
	CopyStatus: func(to, from *apisv1alpha2.APIExport) { to.Status = from.Status },
	SameSpec:   func(a, b *apisv1alpha2.APIExport) bool { return equality.Semantic.DeepEqual(a.Spec, b.Spec) },
	SameStatus: func(a, b *apisv1alpha2.APIExport) bool { return equality.Semantic.DeepEqual(a.Status, b.Status) },

	ValidateName:   validateName,
	ValidateSpec:   validateExportSpec,
	ValidateStatus: validateExportStatus,
	ValidateVersion: map[string]func(*apisv1alpha2.APIExport) field.ErrorList{
		apisv1alpha1.SchemeGroupVersion.Version: validateExportV1alpha1,
	},

	Columns: registry.Columns{resourcesColumn, registry.Age},
	VersionColumns: map[string]registry.Columns{
		apisv1alpha1.SchemeGroupVersion.Version: {resourcesColumn, registry.Age, registry.Column("Ready", `.status.conditions[?(@.type=="VirtualWorkspaceURLsReady")].status`)},
	},
}

var resourcesColumn = registry.ComputedColumn("Resources", printResources)

// printResources returns the first resources of an export, and how many more there are.
func printResources(export *apisv1alpha2.APIExport) string {
	const most = 3
	var out []string
	for _, resource := range export.Spec.Resources[:min(most, len(export.Spec.Resources))] {
		out = append(out, schema.GroupResource{Group: resource.Group, Resource: resource.Name}.String())
	}
	if more := len(export.Spec.Resources) - most; more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, ",")
}

func validateExportSpec(export *apisv1alpha2.APIExport) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	for i, resource := range export.Spec.Resources {
		at := path.Child("resources").Index(i)
		errs = append(errs, validateResource(resource, at)...)
		errs = append(errs, validateSubresource(export, resource, at)...)
	}
	errs = append(errs, validateUnique(export.Spec.Resources, func(resource apisv1alpha2.ResourceSchema) string {
		return resource.Name + "." + resource.Group
	}, path.Child("resources"))...)
	if policy := export.Spec.MaximalPermissionPolicy; policy != nil && policy.Local == nil {
		errs = append(errs, field.Invalid(path.Child("maximalPermissionPolicy"), "", "exactly one of the fields in [local] must be set"))
	}
	for i, claim := range export.Spec.PermissionClaims {
		errs = append(errs, validateClaim(claim, path.Child("permissionClaims").Index(i))...)
	}
	return append(errs, validateUnique(export.Spec.PermissionClaims, func(claim apisv1alpha2.PermissionClaim) string {
		return claim.Resource + "." + claim.Group
	}, path.Child("permissionClaims"))...)
}

func validateResource(resource apisv1alpha2.ResourceSchema, path *field.Path) field.ErrorList {
	errs := registry.ValidateRequired(resource.Name, path.Child("name"))
	errs = append(errs, registry.ValidateRequired(resource.Schema, path.Child("schema"))...)
	storage := path.Child("storage")
	if (resource.Storage.CRD != nil) == (resource.Storage.Virtual != nil) {
		errs = append(errs, field.Invalid(storage, "", "exactly one of the fields in [crd virtual] must be set"))
	}
	if virtual := resource.Storage.Virtual; virtual != nil {
		at := storage.Child("virtual")
		errs = append(errs, registry.ValidateRequired(virtual.Reference.Kind, at.Child("reference", "kind"))...)
		errs = append(errs, registry.ValidateRequired(virtual.Reference.Name, at.Child("reference", "name"))...)
	}
	return errs
}

// validateSubresource validates an entry of a custom subresource.
func validateSubresource(export *apisv1alpha2.APIExport, entry apisv1alpha2.ResourceSchema, path *field.Path) field.ErrorList {
	resource, subresource := subresources.Split(entry)
	if !subresources.IsEntry(entry) {
		return nil
	}
	errs := registry.ValidatePattern(entry.Name, resourcePattern, path.Child("name"))
	if !subresources.IsCustom(subresource) {
		errs = append(errs, field.Invalid(path.Child("name"), entry.Name, "status and scale are defined by the schema of the resource"))
	}
	if !slices.ContainsFunc(export.Spec.Resources, func(other apisv1alpha2.ResourceSchema) bool {
		return other.Name == resource.Resource && other.Group == resource.Group
	}) {
		errs = append(errs, field.Invalid(path.Child("name"), entry.Name, fmt.Sprintf("the export has to offer the resource %s, too", resource)))
	}
	if entry.Storage.CRD != nil {
		errs = append(errs, field.Invalid(path.Child("storage", "crd"), "", "a subresource has no objects: it must have virtual storage"))
	}
	return errs
}

func validateExportStatus(export *apisv1alpha2.APIExport) field.ErrorList {
	path := field.NewPath("status")
	errs := registry.ValidateConditions(export.Status.Conditions, path.Child("conditions"))
	for i, virtual := range export.Status.VirtualWorkspaces {
		errs = append(errs, registry.ValidateRequired(virtual.URL, path.Child("virtualWorkspaces").Index(i).Child("url"))...)
	}
	return errs
}
