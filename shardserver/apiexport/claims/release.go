package claims

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// ReleaseRetryInterval is how long to wait before calling Release again.
const ReleaseRetryInterval = 100 * time.Millisecond

// Releaser removes the claim labels of bindings that are being deleted.
type Releaser struct{ labeler *labeler }

// NewReleaser returns a releaser.
func NewReleaser(cfg Config) *Releaser { return &Releaser{newLabeler(cfg)} }

// Release ends the claims of a binding that is being deleted and whose bound resources have no objects left; before that
// the provider may have to clean up claimed objects. It removes the claim labels of all objects and reports whether that
// is done. If not, the caller has to write the status of the binding, which Release changes, and call it again.
//
// The status is the only state between two calls, so each call checks all objects of all resources that were accepted.
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
	if !areClaimsEnded(binding) {
		conditionsv1alpha1.MarkTrue(binding, apisv1alpha2.BindingResourceDeleteSuccess)
		return false, nil
	}
	if upToDate, err := r.labeler.cfg.Index.isUpToDate(binding); !upToDate || err != nil {
		return false, err
	}
	err = r.labeler.relabel(ctx, outdatedResources(accepted, nil))
	if err != nil && !errors.Is(err, errUnfinished) {
		setFailed(binding, err)
	}
	return err == nil, nil
}

// areClaimsEnded reports whether the claims of a binding are no longer effective, because it is being deleted and the
// objects of its bound resources are gone.
func areClaimsEnded(binding *apisv1alpha2.APIBinding) bool {
	return binding.DeletionTimestamp != nil && conditionsv1alpha1.IsTrue(binding, apisv1alpha2.BindingResourceDeleteSuccess)
}

// claimKey identifies the resource of a claim.
type claimKey struct {
	schema.GroupResource
	identity string
}

func newClaimKey(claim apisv1alpha2.PermissionClaim) claimKey {
	return claimKey{schema.GroupResource{Group: claim.Group, Resource: claim.Resource}, claim.IdentityHash}
}

// indexByKey indexes claims by key, because there may be thousands.
func indexByKey[T any](claims []T, claimOf func(T) apisv1alpha2.PermissionClaim) map[claimKey]T {
	indexed := make(map[claimKey]T, len(claims))
	for _, claim := range claims {
		indexed[newClaimKey(claimOf(claim))] = claim
	}
	return indexed
}

func permissionClaim(claim apisv1alpha2.PermissionClaim) apisv1alpha2.PermissionClaim { return claim }

func scopedPermissionClaim(claim apisv1alpha2.ScopedPermissionClaim) apisv1alpha2.PermissionClaim {
	return claim.PermissionClaim
}
