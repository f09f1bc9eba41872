package claims

import (
	"errors"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

func newClaim(group, resource string, verbs ...string) apisv1alpha2.PermissionClaim {
	return apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Group: group, Resource: resource}, Verbs: verbs}
}

func newScopedClaim(claim apisv1alpha2.PermissionClaim, labels map[string]string) apisv1alpha2.ScopedPermissionClaim {
	scoped := apisv1alpha2.ScopedPermissionClaim{PermissionClaim: claim}
	scoped.Selector.MatchAll, scoped.Selector.MatchLabels = labels == nil, labels
	return scoped
}

func newAcceptableClaim(claim apisv1alpha2.ScopedPermissionClaim, state apisv1alpha2.AcceptablePermissionClaimState) apisv1alpha2.AcceptablePermissionClaim {
	return apisv1alpha2.AcceptablePermissionClaim{PermissionClaim: claim.PermissionClaim, Selector: claim.Selector, State: state}
}

// newBinding returns a binding to an export with claims.
func newBinding(claims ...apisv1alpha2.PermissionClaim) *apisv1alpha2.APIBinding {
	return &apisv1alpha2.APIBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "binding", Annotations: map[string]string{"kcp.io/cluster": "consumer"}},
		Spec:       apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Name: "export"}}},
		Status:     apisv1alpha2.APIBindingStatus{APIExportClusterName: "provider", ExportPermissionClaims: claims},
	}
}

func TestUpdateStatus(t *testing.T) {
	maps, secrets := newClaim("", "configmaps", "get"), newClaim("", "secrets", "get")
	owned := newClaim("example.io", "things", "get")
	owned.IdentityHash = "id"
	all := func(claim apisv1alpha2.PermissionClaim) apisv1alpha2.ScopedPermissionClaim {
		return newScopedClaim(claim, nil)
	}
	accept := func(claim apisv1alpha2.ScopedPermissionClaim) apisv1alpha2.AcceptablePermissionClaim {
		return newAcceptableClaim(claim, apisv1alpha2.ClaimAccepted)
	}
	selective := maps
	selective.DefaultSelector = &apisv1alpha2.PermissionClaimSelector{MatchAll: true}
	some := newScopedClaim(maps, map[string]string{"a": "b"})
	configMaps := schema.GroupResource{Resource: "configmaps"}
	for name, tc := range map[string]struct {
		exported   []apisv1alpha2.PermissionClaim
		acceptable []apisv1alpha2.AcceptablePermissionClaim
		applied    []apisv1alpha2.ScopedPermissionClaim
		deleting   bool
		empty      bool
		pending    []schema.GroupResource
		invalid    string
	}{
		"no claims":                                            {},
		"an accepted claim is pending":                         {exported: []apisv1alpha2.PermissionClaim{maps}, acceptable: []apisv1alpha2.AcceptablePermissionClaim{accept(all(maps))}, pending: []schema.GroupResource{configMaps}},
		"an applied claim is not pending":                      {exported: []apisv1alpha2.PermissionClaim{maps}, acceptable: []apisv1alpha2.AcceptablePermissionClaim{accept(all(maps))}, applied: []apisv1alpha2.ScopedPermissionClaim{all(maps)}},
		"an applied claim that is rejected is pending":         {exported: []apisv1alpha2.PermissionClaim{maps}, acceptable: []apisv1alpha2.AcceptablePermissionClaim{newAcceptableClaim(all(maps), apisv1alpha2.ClaimRejected)}, applied: []apisv1alpha2.ScopedPermissionClaim{all(maps)}, pending: []schema.GroupResource{configMaps}},
		"an applied claim that is no longer listed is pending": {exported: []apisv1alpha2.PermissionClaim{maps}, applied: []apisv1alpha2.ScopedPermissionClaim{all(maps)}, pending: []schema.GroupResource{configMaps}},
		"a changed selector is pending":                        {exported: []apisv1alpha2.PermissionClaim{maps}, acceptable: []apisv1alpha2.AcceptablePermissionClaim{accept(some)}, applied: []apisv1alpha2.ScopedPermissionClaim{all(maps)}, pending: []schema.GroupResource{configMaps}},
		"changed verbs are not pending": {
			exported: []apisv1alpha2.PermissionClaim{maps}, acceptable: []apisv1alpha2.AcceptablePermissionClaim{accept(all(newClaim("", "configmaps", "get")))},
			applied: []apisv1alpha2.ScopedPermissionClaim{all(newClaim("", "configmaps", "list"))},
		},
		"a claim that the export no longer makes is invalid and pending": {
			acceptable: []apisv1alpha2.AcceptablePermissionClaim{accept(all(maps))}, applied: []apisv1alpha2.ScopedPermissionClaim{all(maps)},
			pending: []schema.GroupResource{configMaps}, invalid: apisv1alpha2.InvalidPermissionClaimsReason,
		},
		"a claim with another identity is another claim": {
			exported: []apisv1alpha2.PermissionClaim{owned}, acceptable: []apisv1alpha2.AcceptablePermissionClaim{accept(all(newClaim("example.io", "things", "get")))},
			invalid: apisv1alpha2.InvalidPermissionClaimsReason,
		},
		"different verbs are a mismatch": {
			exported: []apisv1alpha2.PermissionClaim{maps}, acceptable: []apisv1alpha2.AcceptablePermissionClaim{accept(all(newClaim("", "configmaps", "list")))},
			applied: []apisv1alpha2.ScopedPermissionClaim{all(newClaim("", "configmaps", "list"))}, invalid: apisv1alpha2.PermissionClaimsMismatchReason,
		},
		"the verb * on one side is no mismatch": {
			exported: []apisv1alpha2.PermissionClaim{maps}, acceptable: []apisv1alpha2.AcceptablePermissionClaim{accept(all(newClaim("", "configmaps", "*")))},
			applied: []apisv1alpha2.ScopedPermissionClaim{all(newClaim("", "configmaps", "*"))},
		},
		"a selector that differs from the default is a mismatch": {
			exported: []apisv1alpha2.PermissionClaim{selective}, acceptable: []apisv1alpha2.AcceptablePermissionClaim{accept(some)},
			applied: []apisv1alpha2.ScopedPermissionClaim{some}, invalid: apisv1alpha2.PermissionClaimsMismatchReason,
		},
		"a binding that is being deleted keeps its claims while objects remain": {
			exported: []apisv1alpha2.PermissionClaim{maps, secrets}, acceptable: []apisv1alpha2.AcceptablePermissionClaim{accept(all(maps)), accept(all(secrets))},
			applied: []apisv1alpha2.ScopedPermissionClaim{all(maps)}, deleting: true, pending: []schema.GroupResource{{Resource: "secrets"}},
		},
		"a binding that is being deleted without objects has no claims": {
			exported: []apisv1alpha2.PermissionClaim{maps, secrets}, acceptable: []apisv1alpha2.AcceptablePermissionClaim{accept(all(maps)), accept(all(secrets))},
			applied: []apisv1alpha2.ScopedPermissionClaim{all(maps)}, deleting: true, empty: true, pending: []schema.GroupResource{configMaps},
		},
		"both groups of events are one resource": {
			exported: []apisv1alpha2.PermissionClaim{newClaim("events.k8s.io", "events", "*")}, acceptable: []apisv1alpha2.AcceptablePermissionClaim{accept(all(newClaim("events.k8s.io", "events", "*")))},
			pending: []schema.GroupResource{{Resource: "events"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			binding := newBinding(tc.exported...)
			binding.Spec.PermissionClaims, binding.Status.AppliedPermissionClaims = tc.acceptable, tc.applied
			if tc.deleting {
				now := metav1.Now()
				binding.DeletionTimestamp = &now
			}
			if tc.empty {
				conditionsv1alpha1.MarkTrue(binding, apisv1alpha2.BindingResourceDeleteSuccess)
			}
			if got := UpdateStatus(binding); !slices.Equal(got, tc.pending) {
				t.Errorf("pending: got %v, want %v", got, tc.pending)
			}
			if got := conditionsv1alpha1.GetReason(binding, apisv1alpha2.PermissionClaimsValid); got != tc.invalid {
				t.Errorf("PermissionClaimsValid: got reason %q, want %q", got, tc.invalid)
			}
			if got := conditionsv1alpha1.IsTrue(binding, apisv1alpha2.PermissionClaimsApplied); got != (len(tc.pending) == 0) {
				t.Errorf("applied: %v", got)
			}
			second := binding.DeepCopy()
			if UpdateStatus(second); !slices.Equal(second.Status.Conditions, binding.Status.Conditions) {
				t.Errorf("the second call sets %v, the first %v", second.Status.Conditions, binding.Status.Conditions)
			}
		})
	}
	t.Run("no conditions while the export is unknown", func(t *testing.T) {
		binding := newBinding(maps)
		binding.Status.APIExportClusterName = ""
		if pending := UpdateStatus(binding); pending != nil || len(binding.Status.Conditions) != 0 {
			t.Errorf("got %v, %v", pending, binding.Status.Conditions)
		}
	})
	t.Run("a claim with another selector is removed before it is applied", func(t *testing.T) {
		token := newClaim("", "serviceaccounts/token", "create") // no objects have to be labelled for it
		binding := newBinding(token)
		binding.Status.AppliedPermissionClaims = []apisv1alpha2.ScopedPermissionClaim{all(token)}
		withdrawn := all(token)
		withdrawn.Selector.MatchAll = false
		binding.Spec.PermissionClaims = []apisv1alpha2.AcceptablePermissionClaim{accept(withdrawn)}
		for _, want := range []int{0, 1, 1} {
			if pending := UpdateStatus(binding); len(pending) > 0 || len(binding.Status.AppliedPermissionClaims) != want {
				t.Fatalf("pending %v, applied %v, want %d", pending, binding.Status.AppliedPermissionClaims, want)
			}
		}
		if binding.Status.AppliedPermissionClaims[0].Selector.MatchAll {
			t.Error("the old selector is applied")
		}
	})
	t.Run("a failure is reported, and applied claims are kept", func(t *testing.T) {
		binding := newBinding(maps)
		binding.Status.AppliedPermissionClaims = []apisv1alpha2.ScopedPermissionClaim{all(maps)}
		setFailed(binding, errors.New("no"))
		if !conditionsv1alpha1.IsFalse(binding, apisv1alpha2.PermissionClaimsApplied) || len(binding.Status.AppliedPermissionClaims) != 1 {
			t.Errorf("got %+v", binding.Status)
		}
	})
}
