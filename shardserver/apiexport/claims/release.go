package claims

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// ReleaseRetryInterval is how long to wait before Release is asked again.
const ReleaseRetryInterval = 100 * time.Millisecond

// Releaser ends the claims of a binding that is being deleted.
type Releaser struct{ labeler *labeler }

// NewReleaser returns a releaser.
func NewReleaser(cfg Config) *Releaser { return &Releaser{newLabeler(cfg)} }

// Release is for a binding that is being deleted and of whose bound resources no object is left. Until then its claims
// hold: what a provider cleans up may be in claimed objects. It takes the labels of claims off all objects, and tells
// whether that is done. Until it is, it changes the status of the binding, which the caller has to write, and has to be
// asked again.
//
// Nothing is remembered between two calls but the status, so all objects of what was ever accepted are looked at.
func (r *Releaser) Release(ctx context.Context, binding *apisv1alpha2.APIBinding) (done bool, err error) {
	accepted := append([]apisv1alpha2.ScopedPermissionClaim(nil), binding.Status.AppliedPermissionClaims...)
	for _, claim := range binding.Spec.PermissionClaims {
		if claim.State == apisv1alpha2.ClaimAccepted {
			accepted = append(accepted, claim.Scoped())
		}
	}
	if len(accepted) == 0 {
		return true, nil
	}
	if deleting, err := r.labeler.isClusterDeleting(ctx); deleting || err != nil {
		return deleting, err
	}
	if !claimsEnded(binding) {
		conditionsv1alpha1.MarkTrue(binding, apisv1alpha2.BindingResourceDeleteSuccess)
		return false, nil
	}
	if reflected, err := r.labeler.cfg.Index.isUpToDate(binding); !reflected || err != nil {
		return false, err
	}
	err = r.labeler.relabel(ctx, outdatedResources(accepted, nil))
	if err != nil && !errors.Is(err, errUnfinished) {
		setFailed(binding, err)
	}
	return err == nil, nil
}

// claimsEnded tells whether the claims of a binding hold no more because it is being deleted and has nothing else to wait for.
func claimsEnded(binding *apisv1alpha2.APIBinding) bool {
	return binding.DeletionTimestamp != nil && conditionsv1alpha1.IsTrue(binding, apisv1alpha2.BindingResourceDeleteSuccess)
}

// claimKey names the resource of a claim.
type claimKey struct {
	schema.GroupResource
	identity string
}

func claimKeyOf(claim apisv1alpha2.PermissionClaim) claimKey {
	return claimKey{schema.GroupResource{Group: claim.Group, Resource: claim.Resource}, claim.IdentityHash}
}

// indexByKey indexes claims, since objects may hold thousands of them.
func indexByKey[T any](claims []T, claimOf func(T) apisv1alpha2.PermissionClaim) map[claimKey]T {
	indexed := make(map[claimKey]T, len(claims))
	for _, claim := range claims {
		indexed[claimKeyOf(claimOf(claim))] = claim
	}
	return indexed
}

func asIs(claim apisv1alpha2.PermissionClaim) apisv1alpha2.PermissionClaim { return claim }

func unscoped(claim apisv1alpha2.ScopedPermissionClaim) apisv1alpha2.PermissionClaim {
	return claim.PermissionClaim
}
