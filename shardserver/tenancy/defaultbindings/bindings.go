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

// defaultBinding is a default binding of the types of a logical cluster.
type defaultBinding struct {
	// name is the name of the APIBinding.
	name      string
	reference apiindex.Reference
	// maintained is set if a type with lifecycle Maintain has it.
	maintained bool
}

// defaultBindings returns the default bindings of the aliases of a logical cluster, in their order. Duplicates of the
// same path and export are merged, and are maintained if one of them is.
func defaultBindings(cluster logicalcluster.Name, aliases []workspacetype.Resolved) ([]defaultBinding, error) {
	var all []defaultBinding
	for _, alias := range aliases {
		for _, entry := range alias.Spec.DefaultAPIBindings {
			reference, err := apiindex.NewReference(alias.Cluster, entry.Path, entry.Export)
			if err != nil {
				return nil, err
			}
			name := apiindex.DefaultBindingName(cluster, reference.Path, reference.Name)
			at := slices.IndexFunc(all, func(w defaultBinding) bool { return w.name == name })
			if at < 0 {
				all = append(all, defaultBinding{name: name, reference: reference})
				at = len(all) - 1
			}
			all[at].maintained = all[at].maintained || maintains(alias)
		}
	}
	return all, nil
}

// HasMaintained reports whether any of the types maintains bindings.
func HasMaintained(aliases []workspacetype.Resolved) bool {
	return slices.ContainsFunc(aliases, maintains)
}

func maintains(alias workspacetype.Resolved) bool {
	mode := alias.Spec.DefaultAPIBindingLifecycle
	return len(alias.Spec.DefaultAPIBindings) > 0 && mode != nil && *mode == tenancyv1alpha1.APIBindingLifecycleModeMaintain
}

// newSpec returns the spec of a binding to an export: all claims of the export are accepted, with their default
// selectors. keepDefault also copies the default selector to the claim.
func newSpec(reference apiindex.Reference, export *apisv1alpha2.APIExport, keepDefault bool) apisv1alpha2.APIBindingSpec {
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

// find returns the APIBinding of that name, or nil.
func (d defaultBinding) find(bindings []*apisv1alpha2.APIBinding) *apisv1alpha2.APIBinding {
	for _, binding := range bindings {
		if binding.Name == d.name {
			return binding
		}
	}
	return nil
}

// isCompleteIn reports whether one of the bindings binds the export. Bindings of users with another name or path count,
// too.
func (d defaultBinding) isCompleteIn(bindings []*apisv1alpha2.APIBinding) bool {
	own := d.find(bindings)
	return slices.ContainsFunc(bindings, func(binding *apisv1alpha2.APIBinding) bool {
		return (d.matchesReference(binding) || sameExport(own, binding)) && complete(binding)
	})
}

func (d defaultBinding) matchesReference(binding *apisv1alpha2.APIBinding) bool {
	reference, err := apiindex.ReferenceOf(binding)
	return err == nil && reference == d.reference
}

func sameExport(a, b *apisv1alpha2.APIBinding) bool {
	return a != nil && a.Status.APIExportClusterName != "" && a.Status.APIExportClusterName == b.Status.APIExportClusterName &&
		a.Spec.Reference.Export != nil && b.Spec.Reference.Export != nil && a.Spec.Reference.Export.Name == b.Spec.Reference.Export.Name
}

// complete reports whether a binding is initially bound and its accepted claims are applied.
func complete(binding *apisv1alpha2.APIBinding) bool {
	if !conditionsv1alpha1.IsTrue(binding, apisv1alpha2.InitialBindingCompleted) {
		return false
	}
	accepts := slices.ContainsFunc(binding.Spec.PermissionClaims, func(claim apisv1alpha2.AcceptablePermissionClaim) bool {
		return claim.State == apisv1alpha2.ClaimAccepted
	})
	return !accepts || conditionsv1alpha1.IsTrue(binding, apisv1alpha2.PermissionClaimsApplied)
}
