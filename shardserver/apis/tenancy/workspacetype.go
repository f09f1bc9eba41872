package tenancy

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/apis/install"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

var workspaceTypes = &registry.Kind[*tenancyv1alpha1.WorkspaceType]{
	Resource: tenancyv1alpha1.SchemeGroupVersion.WithResource("workspacetypes"),
	Singular: "workspacetype",

	New:        func() *tenancyv1alpha1.WorkspaceType { return &tenancyv1alpha1.WorkspaceType{} },
	NewList:    func() runtime.Object { return &tenancyv1alpha1.WorkspaceTypeList{} },
	Default:    install.DefaultWorkspaceType,
	CopySpec:   func(to, from *tenancyv1alpha1.WorkspaceType) { to.Spec = from.Spec },
	CopyStatus: func(to, from *tenancyv1alpha1.WorkspaceType) { to.Status = from.Status },
	SameSpec: func(a, b *tenancyv1alpha1.WorkspaceType) bool {
		return equality.Semantic.DeepEqual(a.Spec, b.Spec)
	},
	SameStatus: func(a, b *tenancyv1alpha1.WorkspaceType) bool {
		return equality.Semantic.DeepEqual(a.Status, b.Status)
	},

	ValidateName:   validateWorkspaceTypeName,
	ValidateSpec:   validateWorkspaceTypeSpec,
	ValidateStatus: validateWorkspaceTypeStatus,
}

func validateWorkspaceTypeName(name string, path *field.Path) field.ErrorList {
	errs := validateName(name, path)
	if name == "system" || name == "any" {
		errs = append(errs, field.Invalid(path, name, "name is reserved"))
	}
	return errs
}

func validateWorkspaceTypeSpec(workspaceType *tenancyv1alpha1.WorkspaceType) field.ErrorList {
	path := field.NewPath("spec")
	spec := workspaceType.Spec
	errs := validateRules(spec.InitializerPermissions, path.Child("initializerPermissions"))
	errs = append(errs, validateRules(spec.TerminatorPermissions, path.Child("terminatorPermissions"))...)
	errs = append(errs, validateTypeReferences(spec.Extend.With, path.Child("extend", "with"))...)
	if child := spec.DefaultChildWorkspaceType; child != nil {
		errs = append(errs, validateTypeReference(*child, path.Child("defaultChildWorkspaceType"))...)
	}
	errs = append(errs, validateTypeSelector(spec.LimitAllowedChildren, path.Child("limitAllowedChildren"))...)
	errs = append(errs, validateTypeSelector(spec.LimitAllowedParents, path.Child("limitAllowedParents"))...)
	for i, binding := range spec.DefaultAPIBindings {
		at := path.Child("defaultAPIBindings").Index(i)
		errs = append(errs, registry.ValidateRequired(binding.Export, at.Child("export"))...)
		errs = append(errs, registry.ValidatePattern(binding.Path, pathPattern, at.Child("path"))...)
	}
	if lifecycle := spec.DefaultAPIBindingLifecycle; lifecycle != nil {
		errs = append(errs, validateLifecycle(*lifecycle, path.Child("defaultAPIBindingLifecycle"))...)
	}
	for i, configuration := range spec.AuthenticationConfigurations {
		errs = append(errs, registry.ValidateRequired(configuration.Name, path.Child("authenticationConfigurations").Index(i).Child("name"))...)
	}
	return errs
}

func validateLifecycle(mode tenancyv1alpha1.APIBindingLifecycleMode, path *field.Path) field.ErrorList {
	allowed := []tenancyv1alpha1.APIBindingLifecycleMode{
		tenancyv1alpha1.APIBindingLifecycleModeInitializeOnly,
		tenancyv1alpha1.APIBindingLifecycleModeMaintain,
	}
	if mode == "" { // present, because it is a pointer, but not a valid value
		return field.ErrorList{field.NotSupported(path, mode, allowed)}
	}
	return registry.ValidateOneOf(mode, allowed, path)
}

func validateTypeReferences(refs []tenancyv1alpha1.WorkspaceTypeReference, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, ref := range refs {
		errs = append(errs, validateTypeReference(ref, path.Index(i))...)
	}
	return errs
}

// validateTypeSelector requires either none, with any value, or a non-empty list.
func validateTypeSelector(selector *tenancyv1alpha1.WorkspaceTypeSelector, path *field.Path) field.ErrorList {
	if selector == nil {
		return nil
	}
	var errs field.ErrorList
	if (selector.None != nil) == (selector.Types != nil) {
		errs = append(errs, field.Invalid(path, "", "exactly one of the fields in [none types] must be set"))
	}
	if selector.Types != nil && len(selector.Types) == 0 {
		errs = append(errs, field.Invalid(path.Child("types"), 0, "should have at least 1 items"))
	}
	return append(errs, validateTypeReferences(selector.Types, path.Child("types"))...)
}

func validateRules(rules []rbacv1.PolicyRule, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, rule := range rules {
		if rule.Verbs == nil {
			errs = append(errs, field.Required(path.Index(i).Child("verbs"), ""))
		}
	}
	return errs
}

func validateWorkspaceTypeStatus(workspaceType *tenancyv1alpha1.WorkspaceType) field.ErrorList {
	path := field.NewPath("status")
	errs := registry.ValidateConditions(workspaceType.Status.Conditions, path.Child("conditions"))
	for i, virtual := range workspaceType.Status.VirtualWorkspaces {
		at := path.Child("virtualWorkspaces").Index(i)
		errs = append(errs, registry.ValidateRequired(virtual.URL, at.Child("url"))...)
		errs = append(errs, registry.ValidateOneOf(virtual.Type, []tenancyv1alpha1.VirtualWorkspaceType{
			tenancyv1alpha1.VirtualWorkspaceTypeInitializing,
			tenancyv1alpha1.VirtualWorkspaceTypeTerminating,
		}, at.Child("type"))...)
	}
	return errs
}
