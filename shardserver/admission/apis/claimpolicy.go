package apis

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/authorization"
)

// oldExport returns the export before an update, an empty one for a creation.
func oldExport(a admission.Attributes) (*apisv1alpha2.APIExport, error) {
	if a.GetOperation() != admission.Update {
		return &apisv1alpha2.APIExport{}, nil
	}
	return rules.ObjectOf[*apisv1alpha2.APIExport](a.GetOldObject())
}

// validatePolicies validates resources and claims, with the PermissionClaimPolicies of the installation. Policies are checked for API groups
// and claims that the request adds, so that a policy that comes or goes does not stop other changes of an export.
func (e apiExport) validatePolicies(ctx context.Context, a admission.Attributes, export, old *apisv1alpha2.APIExport) error {
	policies, err := e.policies.List(ctx)
	if err != nil {
		return apierrors.NewInternalError(errors.New("the policies of permission claims cannot be read"))
	}
	own, before := exportedGroups(export), exportedGroups(old)
	isPermitted := func(claim apisv1alpha2.PermissionClaim) bool {
		// Another set of own groups may have another claimer.
		return own.Equal(before) && slices.ContainsFunc(old.Spec.PermissionClaims, claim.EqualGRI) || policies.AllowClaim(own, claim.Group)
	}
	if errs := validateExport(export.Spec, isPermitted); len(errs) > 0 {
		return rules.Forbid(a, "%w", errs.ToAggregate())
	}
	added := own.Difference(before)
	if added.Len() == 0 || len(policies) == 0 {
		return nil
	}
	cluster, ok := logicalcluster.From(ctx)
	if !ok {
		return apierrors.NewInternalError(rules.ErrNoCluster)
	}
	who := authorization.ForRule(cluster, logicalcluster.Root, a.GetUserInfo())
	for _, group := range sets.List(added) {
		if policy, reserved := policies.ReservedBy(group, who); reserved {
			return rules.Forbid(a, "API group %q is reserved by PermissionClaimPolicy %q", group, policy)
		}
	}
	return nil
}

// exportedGroups returns the API groups of the resources of an export.
func exportedGroups(export *apisv1alpha2.APIExport) sets.Set[string] {
	groups := sets.New[string]()
	for _, resource := range export.Spec.Resources {
		groups.Insert(resource.Group)
	}
	return groups
}
