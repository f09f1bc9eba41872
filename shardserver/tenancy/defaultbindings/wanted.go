package defaultbindings

import (
	"slices"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

// wanted is a binding that the types of a logical cluster ask for.
type wanted struct {
	// name is that of the binding.
	name      string
	reference apiindex.Reference
	// maintained tells that some type wants it to stay as it is.
	maintained bool
}

// wantedBy returns what the aliases of a logical cluster ask for, in their order. An export that is named twice by the
// same path is one binding, and maintained if one of the two is.
func wantedBy(cluster logicalcluster.Name, aliases []workspacetype.Resolved) ([]wanted, error) {
	var all []wanted
	for _, alias := range aliases {
		for _, entry := range alias.Spec.DefaultAPIBindings {
			reference, err := apiindex.NewReference(alias.Cluster, entry.Path, entry.Export)
			if err != nil {
				return nil, err
			}
			name := apiindex.DefaultBindingName(cluster, reference.Path, reference.Name)
			at := slices.IndexFunc(all, func(w wanted) bool { return w.name == name })
			if at < 0 {
				all = append(all, wanted{name: name, reference: reference})
				at = len(all) - 1
			}
			all[at].maintained = all[at].maintained || maintains(alias)
		}
	}
	return all, nil
}

// Maintained tells whether any of the types wants bindings to stay as they are.
func Maintained(aliases []workspacetype.Resolved) bool {
	return slices.ContainsFunc(aliases, maintains)
}

func maintains(alias workspacetype.Resolved) bool {
	mode := alias.Spec.DefaultAPIBindingLifecycle
	return len(alias.Spec.DefaultAPIBindings) > 0 && mode != nil && *mode == tenancyv1alpha1.APIBindingLifecycleModeMaintain
}

// specOf returns what a binding to an export shall say: all claims of the export are accepted. The selector that a claim
// has by default is that of the answer either way; keepDefault repeats it in the claim.
func specOf(reference apiindex.Reference, export *apisv1alpha2.APIExport, keepDefault bool) apisv1alpha2.APIBindingSpec {
	spec := apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{
		Export: &apisv1alpha2.ExportBindingReference{Path: reference.Path.String(), Name: reference.Name},
	}}
	for _, claim := range export.Spec.PermissionClaims {
		accepted := apisv1alpha2.AcceptablePermissionClaim{
			PermissionClaim: *claim.DeepCopy(), Selector: apisv1alpha2.PermissionClaimSelector{MatchAll: true},
			State: apisv1alpha2.ClaimAccepted,
		}
		if claim.DefaultSelector != nil {
			accepted.Selector = *claim.DefaultSelector.DeepCopy()
		}
		if !keepDefault {
			accepted.DefaultSelector = nil
		}
		spec.PermissionClaims = append(spec.PermissionClaims, accepted)
	}
	return spec
}

// in returns the binding that was made for it, or nil.
func (w wanted) in(bindings []*apisv1alpha2.APIBinding) *apisv1alpha2.APIBinding {
	for _, binding := range bindings {
		if binding.Name == w.name {
			return binding
		}
	}
	return nil
}

// completeIn tells whether one of the bindings has bound what is wanted. It need not be the one that was made for it: what
// a user has bound under another name, or by another path, serves as well.
func (w wanted) completeIn(bindings []*apisv1alpha2.APIBinding) bool {
	own := w.in(bindings)
	return slices.ContainsFunc(bindings, func(binding *apisv1alpha2.APIBinding) bool {
		return (w.namedBy(binding) || sameExport(own, binding)) && complete(binding)
	})
}

func (w wanted) namedBy(binding *apisv1alpha2.APIBinding) bool {
	reference, err := apiindex.ReferenceOf(binding)
	return err == nil && reference == w.reference
}

func sameExport(a, b *apisv1alpha2.APIBinding) bool {
	return a != nil && a.Status.APIExportClusterName != "" && a.Status.APIExportClusterName == b.Status.APIExportClusterName &&
		a.Spec.Reference.Export != nil && b.Spec.Reference.Export != nil && a.Spec.Reference.Export.Name == b.Spec.Reference.Export.Name
}

// complete tells whether a binding has bound everything once, and whether the provider sees what it accepted.
func complete(binding *apisv1alpha2.APIBinding) bool {
	if !conditionsv1alpha1.IsTrue(binding, apisv1alpha2.InitialBindingCompleted) {
		return false
	}
	accepts := slices.ContainsFunc(binding.Spec.PermissionClaims, func(claim apisv1alpha2.AcceptablePermissionClaim) bool {
		return claim.State == apisv1alpha2.ClaimAccepted
	})
	return !accepts || conditionsv1alpha1.IsTrue(binding, apisv1alpha2.PermissionClaimsApplied)
}
