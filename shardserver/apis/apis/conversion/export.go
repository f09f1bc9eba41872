package conversion

import (
	"fmt"
	"slices"
	"strings"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

// coreGroup stands for the core group in names of schemas.
const coreGroup = "core"

// ExportToV1alpha2 fails if the name of a schema does not contain group and resource. Both objects share memory
// afterwards.
func ExportToV1alpha2(in *apisv1alpha1.APIExport, out *apisv1alpha2.APIExport) error {
	preserved := &annotationEditor{annotations: in.Annotations}
	spec := apisv1alpha2.APIExportSpec{
		Identity: (*apisv1alpha2.Identity)(in.Spec.Identity),
	}
	if policy := in.Spec.MaximalPermissionPolicy; policy != nil {
		spec.MaximalPermissionPolicy = &apisv1alpha2.MaximalPermissionPolicy{Local: (*apisv1alpha2.LocalAPIExportPolicy)(policy.Local)}
	}
	for _, name := range in.Spec.LatestResourceSchemas {
		resource, err := parseSchemaName(name)
		if err != nil {
			return err
		}
		spec.Resources = append(spec.Resources, resource)
	}
	spec.Resources = append(spec.Resources, popAnnotation(preserved, apisv1alpha2.ResourceSchemasAnnotationKey, validateUnique)...)

	claims := indexByKey(popAnnotation(preserved, apisv1alpha2.PermissionClaimsAnnotationKey, newClaimsValidator(keyV1alpha2, in.Spec.PermissionClaims)), keyV1alpha2)
	spec.PermissionClaims = mapItems(in.Spec.PermissionClaims, func(claim apisv1alpha1.PermissionClaim) apisv1alpha2.PermissionClaim {
		return claimToV1alpha2(claim, claims)
	})
	preserved.remove(apisv1alpha2.V1alpha1PermissionClaimsAnnotationKey) // a client may have set it
	if err := putAnnotation(preserved, apisv1alpha2.V1alpha1PermissionClaimsAnnotationKey, in.Spec.PermissionClaims); err != nil {
		return err
	}
	out.ObjectMeta, out.Spec = in.ObjectMeta, spec
	out.Annotations = preserved.annotations
	out.Status = apisv1alpha2.APIExportStatus{
		IdentityHash: in.Status.IdentityHash,
		Conditions:   in.Status.Conditions,
		VirtualWorkspaces: mapItems(in.Status.VirtualWorkspaces, func(v apisv1alpha1.VirtualWorkspace) apisv1alpha2.VirtualWorkspace {
			return apisv1alpha2.VirtualWorkspace(v)
		}),
	}
	return nil
}

// ExportToV1alpha1 never fails. The objects share memory afterwards.
func ExportToV1alpha1(in *apisv1alpha2.APIExport, out *apisv1alpha1.APIExport) error {
	preserved := &annotationEditor{annotations: in.Annotations}
	spec := apisv1alpha1.APIExportSpec{
		Identity: (*apisv1alpha1.Identity)(in.Spec.Identity),
	}
	if policy := in.Spec.MaximalPermissionPolicy; policy != nil {
		spec.MaximalPermissionPolicy = &apisv1alpha1.MaximalPermissionPolicy{Local: (*apisv1alpha1.LocalAPIExportPolicy)(policy.Local)}
	}
	var others []apisv1alpha2.ResourceSchema
	for _, resource := range in.Spec.Resources {
		if isDerivable(resource) {
			spec.LatestResourceSchemas = append(spec.LatestResourceSchemas, resource.Schema)
		} else {
			others = append(others, resource)
		}
	}
	if err := putAnnotation(preserved, apisv1alpha2.ResourceSchemasAnnotationKey, others); err != nil {
		return err
	}
	if slices.ContainsFunc(in.Spec.PermissionClaims, func(claim apisv1alpha2.PermissionClaim) bool { return !hasDefaultVerbs(claim) }) {
		if err := putAnnotation(preserved, apisv1alpha2.PermissionClaimsAnnotationKey, in.Spec.PermissionClaims); err != nil {
			return err
		}
	}
	claims := indexByKey(popAnnotation(preserved, apisv1alpha2.V1alpha1PermissionClaimsAnnotationKey, acceptAll[apisv1alpha1.PermissionClaim]), keyV1alpha1)
	spec.PermissionClaims = mapItems(in.Spec.PermissionClaims, func(claim apisv1alpha2.PermissionClaim) apisv1alpha1.PermissionClaim {
		return claimToV1alpha1(claim, claims)
	})
	out.ObjectMeta, out.Spec = in.ObjectMeta, spec
	out.Annotations = preserved.annotations
	out.Status = apisv1alpha1.APIExportStatus{
		IdentityHash: in.Status.IdentityHash,
		Conditions:   in.Status.Conditions,
		VirtualWorkspaces: mapItems(in.Status.VirtualWorkspaces, func(v apisv1alpha2.VirtualWorkspace) apisv1alpha1.VirtualWorkspace {
			return apisv1alpha1.VirtualWorkspace(v)
		}),
	}
	return nil
}

// parseSchemaName returns the resource of a schema named "<prefix>.<resource>.<group or core>".
func parseSchemaName(name string) (apisv1alpha2.ResourceSchema, error) {
	parts := strings.SplitN(name, ".", 3)
	if len(parts) < 3 {
		return apisv1alpha2.ResourceSchema{}, fmt.Errorf("the name of schema %q is not <prefix>.<resource>.<group>", name)
	}
	group := parts[2]
	if group == coreGroup {
		group = ""
	}
	return apisv1alpha2.ResourceSchema{
		Name: parts[1], Group: group, Schema: name,
		Storage: apisv1alpha2.ResourceSchemaStorage{CRD: &apisv1alpha2.ResourceSchemaStorageCRD{}},
	}, nil
}

// isDerivable reports whether a resource can be derived from the name of its schema.
func isDerivable(resource apisv1alpha2.ResourceSchema) bool {
	derived, err := parseSchemaName(resource.Schema)
	return err == nil && resource.Storage.CRD != nil && resource.Storage.Virtual == nil &&
		derived.Name == resource.Name && derived.Group == resource.Group
}

// validateUnique checks that every resource occurs once.
func validateUnique(resources []apisv1alpha2.ResourceSchema) error {
	seen := make(map[claimKey]bool, len(resources))
	for _, resource := range resources {
		id := claimKey{group: resource.Group, resource: resource.Name}
		if seen[id] {
			return fmt.Errorf("it contains %s twice", describeClaim(id))
		}
		seen[id] = true
	}
	return nil
}
