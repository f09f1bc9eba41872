// Package claimpolicy decides by PermissionClaimPolicies which claims need no identity hash, and who may export the API groups that
// policies name.
package claimpolicy

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"

	adminv1alpha1 "github.com/atoll-dev/atoll/api/admin/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Reader reads the policies of the installation.
type Reader struct {
	policies *storage.Reader[*adminv1alpha1.PermissionClaimPolicy]
}

// NewReader returns a reader.
func NewReader(registry *storage.Registry) Reader {
	return Reader{storage.NewReader[*adminv1alpha1.PermissionClaimPolicy](registry, adminv1alpha1.Resource("permissionclaimpolicies")).Global()}
}

// List returns all policies, ordered by name. While those of the root shard are not synced, there is none: claims are refused then, and no
// group is reserved.
func (r Reader) List(ctx context.Context) (Policies, error) {
	all, err := r.policies.List(logicalcluster.With(ctx, logicalcluster.Root), "", nil)
	if storage.IsNotSynced(err) {
		return nil, nil
	}
	slices.SortFunc(all, func(a, b *adminv1alpha1.PermissionClaimPolicy) int { return cmp.Compare(a.Name, b.Name) })
	return all, err
}

// Policies are the policies of an installation. They are shared and must not be changed.
type Policies []*adminv1alpha1.PermissionClaimPolicy

// AllowClaim reports whether any policy permits an export with resources of these groups to claim resources of another group without an
// identity hash.
func (p Policies) AllowClaim(own sets.Set[string], claimed string) bool {
	return slices.ContainsFunc(p, func(policy *adminv1alpha1.PermissionClaimPolicy) bool {
		return slices.ContainsFunc(policy.Spec.Claims, func(claim adminv1alpha1.ClaimerGroups) bool {
			return own.Has(claim.Claimer) && slices.Contains(claim.Groups, claimed)
		})
	})
}

// ReservedBy returns the name of the first policy that names a group, as one that claims or is claimed, and does not list the user as a
// provider. Both kinds of groups are reserved: otherwise anyone could claim what a policy permits to the exports of a group.
func (p Policies) ReservedBy(group string, who user.Info) (policy string, reserved bool) {
	for _, policy := range p {
		if names(policy, group) && !lists(policy, who) {
			return policy.Name, true
		}
	}
	return "", false
}

func names(policy *adminv1alpha1.PermissionClaimPolicy, group string) bool {
	return slices.ContainsFunc(policy.Spec.Claims, func(claim adminv1alpha1.ClaimerGroups) bool {
		return claim.Claimer == group || slices.Contains(claim.Groups, group)
	})
}

func lists(policy *adminv1alpha1.PermissionClaimPolicy, who user.Info) bool {
	return slices.ContainsFunc(policy.Spec.Providers, func(subject adminv1alpha1.PolicySubject) bool {
		switch subject.Kind {
		case adminv1alpha1.PolicySubjectUser:
			return subject.Name == who.GetName()
		case adminv1alpha1.PolicySubjectGroup:
			return slices.Contains(who.GetGroups(), subject.Name)
		}
		return false
	})
}
