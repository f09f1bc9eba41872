package bootstrap

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

// Names of the built-in types in root.
const (
	typeRoot         = tenancyv1alpha1.WorkspaceTypeRoot
	typeUniversal    = tenancyv1alpha1.WorkspaceTypeUniversal
	typeHome         = "home"
	typeOrganization = "organization"
	typeTeam         = "team"
)

// workspaceTypes returns the built-in types. Defaults of the API are set explicitly, so that the written objects equal
// the stored ones.
func workspaceTypes(options Options) []client.Object {
	root := workspaceType(typeRoot, tenancyv1alpha1.WorkspaceTypeSpec{
		Extend:                    extends(typeUniversal),
		LimitAllowedParents:       none(),
		DefaultChildWorkspaceType: reference(typeUniversal),
	})
	root.Annotations = map[string]string{CreateOnlyAnnotation: "true"}
	types := []client.Object{
		root,
		workspaceType(typeUniversal, tenancyv1alpha1.WorkspaceTypeSpec{
			Initializer:               true,
			DefaultChildWorkspaceType: reference(typeUniversal),
			DefaultAPIBindings: []tenancyv1alpha1.APIExportReference{
				{Path: "root", Export: "tenancy.kcp.io"},
				{Path: "root", Export: "topology.kcp.io"},
			},
		}),
	}
	if options.HomeWorkspaces {
		types = append(types, workspaceType(typeHome, tenancyv1alpha1.WorkspaceTypeSpec{
			Extend:                    extends(typeUniversal),
			LimitAllowedParents:       none(),
			DefaultChildWorkspaceType: reference(typeUniversal),
		}))
	}
	if options.has(batteryWorkspaceTypes) {
		root.Spec.DefaultChildWorkspaceType = reference(typeOrganization)
		types = append(types, organization(), team())
	}
	return types
}

func organization() *tenancyv1alpha1.WorkspaceType {
	return fromBattery(workspaceType(typeOrganization, tenancyv1alpha1.WorkspaceTypeSpec{
		Extend:                    extends(typeUniversal),
		LimitAllowedParents:       only(typeRoot),
		LimitAllowedChildren:      only(typeUniversal),
		DefaultChildWorkspaceType: reference(typeUniversal),
	}))
}

func team() *tenancyv1alpha1.WorkspaceType {
	return fromBattery(workspaceType(typeTeam, tenancyv1alpha1.WorkspaceTypeSpec{
		Extend:                    extends(typeUniversal),
		LimitAllowedParents:       only(typeOrganization, typeTeam),
		DefaultChildWorkspaceType: reference(typeUniversal),
	}))
}

func fromBattery(t *tenancyv1alpha1.WorkspaceType) *tenancyv1alpha1.WorkspaceType {
	t.Annotations = map[string]string{BatteryAnnotation: batteryWorkspaceTypes}
	return t
}

func workspaceType(name string, spec tenancyv1alpha1.WorkspaceTypeSpec) *tenancyv1alpha1.WorkspaceType {
	return &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

func extends(names ...string) tenancyv1alpha1.WorkspaceTypeExtension {
	return tenancyv1alpha1.WorkspaceTypeExtension{With: references(names...)}
}

func only(names ...string) *tenancyv1alpha1.WorkspaceTypeSelector {
	return &tenancyv1alpha1.WorkspaceTypeSelector{Types: references(names...)}
}

func none() *tenancyv1alpha1.WorkspaceTypeSelector {
	return &tenancyv1alpha1.WorkspaceTypeSelector{None: ptr.To(true)}
}

func reference(name string) *tenancyv1alpha1.WorkspaceTypeReference {
	return &references(name)[0]
}

func references(names ...string) []tenancyv1alpha1.WorkspaceTypeReference {
	var refs []tenancyv1alpha1.WorkspaceTypeReference
	for _, name := range names {
		refs = append(refs, tenancyv1alpha1.WorkspaceTypeReference{Name: tenancyv1alpha1.WorkspaceTypeName(name), Path: "root"})
	}
	return refs
}
