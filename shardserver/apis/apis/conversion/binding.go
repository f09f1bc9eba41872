package conversion

import (
	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

// BindingToV1alpha2 never fails. The objects share memory afterwards.
func BindingToV1alpha2(in *apisv1alpha1.APIBinding, out *apisv1alpha2.APIBinding) error {
	preserved := &annotationEditor{annotations: in.Annotations}
	spec := bindingSpecToV1alpha2(preserved, in.Spec)
	status := apisv1alpha2.APIBindingStatus{
		APIExportClusterName: in.Status.APIExportClusterName,
		BoundResources:       mapItems(in.Status.BoundResources, boundToV1alpha2),
		Phase:                apisv1alpha2.APIBindingPhaseType(in.Status.Phase),
		Conditions:           in.Status.Conditions,
	}
	exported := indexByKey(popAnnotation(preserved, apisv1alpha2.StatusExportPermissionClaimsAnnotationKey, acceptAll[apisv1alpha2.PermissionClaim]), keyV1alpha2)
	status.ExportPermissionClaims = mapItems(in.Status.ExportPermissionClaims, func(claim apisv1alpha1.PermissionClaim) apisv1alpha2.PermissionClaim {
		return claimToV1alpha2(claim, exported)
	})
	applied := indexByKey(popAnnotation(preserved, apisv1alpha2.StatusAppliedPermissionClaimsAnnotationKey, acceptAll[apisv1alpha2.ScopedPermissionClaim]), keyScoped)
	status.AppliedPermissionClaims = mapItems(in.Status.AppliedPermissionClaims, func(claim apisv1alpha1.PermissionClaim) apisv1alpha2.ScopedPermissionClaim {
		return scopedToV1alpha2(claim, applied)
	})
	for key, claims := range map[string][]apisv1alpha1.PermissionClaim{
		apisv1alpha2.V1alpha1PermissionClaimsAnnotationKey: filterItems(permissionClaims(in.Spec.PermissionClaims), func(claim apisv1alpha1.PermissionClaim) bool {
			return !claim.All || len(claim.ResourceSelector) > 0
		}),
		apisv1alpha2.V1alpha1StatusExportPermissionClaimsAnnotationKey:  in.Status.ExportPermissionClaims,
		apisv1alpha2.V1alpha1StatusAppliedPermissionClaimsAnnotationKey: in.Status.AppliedPermissionClaims,
	} {
		preserved.remove(key) // a client may have set it
		if err := putAnnotation(preserved, key, claims); err != nil {
			return err
		}
	}
	spec.DeletionPolicy = apisv1alpha2.APIBindingDeletionPolicy(in.Annotations[apisv1alpha2.DeletionPolicyAnnotationKey])
	preserved.remove(apisv1alpha2.DeletionPolicyAnnotationKey)
	out.ObjectMeta, out.Spec, out.Status = in.ObjectMeta, spec, status
	out.Annotations = preserved.annotations
	return nil
}

func bindingSpecToV1alpha2(preserved *annotationEditor, in apisv1alpha1.APIBindingSpec) apisv1alpha2.APIBindingSpec {
	accepted := popAnnotation(preserved, apisv1alpha2.AcceptablePermissionClaimsAnnotationKey,
		newClaimsValidator(keyAcceptable, permissionClaims(in.PermissionClaims)))
	scoped := indexByKey(mapItems(accepted, apisv1alpha2.AcceptablePermissionClaim.Scoped), keyScoped)
	return apisv1alpha2.APIBindingSpec{
		Reference: apisv1alpha2.BindingReference{Export: (*apisv1alpha2.ExportBindingReference)(in.Reference.Export)},
		PermissionClaims: mapItems(in.PermissionClaims, func(claim apisv1alpha1.AcceptablePermissionClaim) apisv1alpha2.AcceptablePermissionClaim {
			converted := scopedToV1alpha2(claim.PermissionClaim, scoped)
			return apisv1alpha2.AcceptablePermissionClaim{
				PermissionClaim: converted.PermissionClaim,
				Selector:        converted.Selector,
				State:           apisv1alpha2.AcceptablePermissionClaimState(claim.State),
			}
		}),
	}
}

func hasDefaultDeletionPolicy(binding *apisv1alpha2.APIBinding) bool {
	return binding.Spec.DeletionPolicy == "" || binding.Spec.DeletionPolicy == apisv1alpha2.DeletionPolicyDelete
}

func permissionClaims(claims []apisv1alpha1.AcceptablePermissionClaim) []apisv1alpha1.PermissionClaim {
	return mapItems(claims, func(claim apisv1alpha1.AcceptablePermissionClaim) apisv1alpha1.PermissionClaim {
		return claim.PermissionClaim
	})
}

func keyAcceptable(claim apisv1alpha2.AcceptablePermissionClaim) claimKey {
	return keyV1alpha2(claim.PermissionClaim)
}

func boundToV1alpha2(in apisv1alpha1.BoundAPIResource) apisv1alpha2.BoundAPIResource {
	return apisv1alpha2.BoundAPIResource{
		Group: in.Group, Resource: in.Resource,
		Schema:          apisv1alpha2.BoundAPIResourceSchema(in.Schema),
		StorageVersions: in.StorageVersions,
	}
}

// BindingToV1alpha1 never fails. The objects share memory afterwards.
func BindingToV1alpha1(in *apisv1alpha2.APIBinding, out *apisv1alpha1.APIBinding) error {
	preserved := &annotationEditor{annotations: in.Annotations}
	err := putAnnotation(preserved, apisv1alpha2.AcceptablePermissionClaimsAnnotationKey,
		filterItems(in.Spec.PermissionClaims, func(claim apisv1alpha2.AcceptablePermissionClaim) bool {
			return !hasDefaultScope(claim.Scoped())
		}))
	if err != nil {
		return err
	}
	err = putAnnotation(preserved, apisv1alpha2.StatusExportPermissionClaimsAnnotationKey,
		filterItems(in.Status.ExportPermissionClaims, func(claim apisv1alpha2.PermissionClaim) bool { return !hasDefaultVerbs(claim) }))
	if err != nil {
		return err
	}
	err = putAnnotation(preserved, apisv1alpha2.StatusAppliedPermissionClaimsAnnotationKey,
		filterItems(in.Status.AppliedPermissionClaims, func(claim apisv1alpha2.ScopedPermissionClaim) bool { return !hasDefaultScope(claim) }))
	if err != nil {
		return err
	}
	if preserved.remove(apisv1alpha2.DeletionPolicyAnnotationKey); !hasDefaultDeletionPolicy(in) {
		preserved.put(apisv1alpha2.DeletionPolicyAnnotationKey, string(in.Spec.DeletionPolicy))
	}
	claims := indexByKey(popAnnotation(preserved, apisv1alpha2.V1alpha1PermissionClaimsAnnotationKey, acceptAll[apisv1alpha1.PermissionClaim]), keyV1alpha1)
	exported := indexByKey(popAnnotation(preserved, apisv1alpha2.V1alpha1StatusExportPermissionClaimsAnnotationKey, acceptAll[apisv1alpha1.PermissionClaim]), keyV1alpha1)
	applied := indexByKey(popAnnotation(preserved, apisv1alpha2.V1alpha1StatusAppliedPermissionClaimsAnnotationKey, acceptAll[apisv1alpha1.PermissionClaim]), keyV1alpha1)

	out.ObjectMeta = in.ObjectMeta
	out.Annotations = preserved.annotations
	out.Spec = apisv1alpha1.APIBindingSpec{
		Reference: apisv1alpha1.BindingReference{Export: (*apisv1alpha1.ExportBindingReference)(in.Spec.Reference.Export)},
		PermissionClaims: mapItems(in.Spec.PermissionClaims, func(claim apisv1alpha2.AcceptablePermissionClaim) apisv1alpha1.AcceptablePermissionClaim {
			return apisv1alpha1.AcceptablePermissionClaim{
				PermissionClaim: claimToV1alpha1(claim.PermissionClaim, claims),
				State:           apisv1alpha1.AcceptablePermissionClaimState(claim.State),
			}
		}),
	}
	out.Status = apisv1alpha1.APIBindingStatus{
		APIExportClusterName: in.Status.APIExportClusterName,
		BoundResources: mapItems(in.Status.BoundResources, func(bound apisv1alpha2.BoundAPIResource) apisv1alpha1.BoundAPIResource {
			return apisv1alpha1.BoundAPIResource{
				Group: bound.Group, Resource: bound.Resource,
				Schema:          apisv1alpha1.BoundAPIResourceSchema(bound.Schema),
				StorageVersions: bound.StorageVersions,
			}
		}),
		Phase:      apisv1alpha1.APIBindingPhaseType(in.Status.Phase),
		Conditions: in.Status.Conditions,
		ExportPermissionClaims: mapItems(in.Status.ExportPermissionClaims, func(claim apisv1alpha2.PermissionClaim) apisv1alpha1.PermissionClaim {
			return claimToV1alpha1(claim, exported)
		}),
		AppliedPermissionClaims: mapItems(in.Status.AppliedPermissionClaims, func(claim apisv1alpha2.ScopedPermissionClaim) apisv1alpha1.PermissionClaim {
			return claimToV1alpha1(claim.PermissionClaim, applied)
		}),
	}
	return nil
}
