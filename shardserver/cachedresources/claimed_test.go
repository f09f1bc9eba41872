package cachedresources_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testClaimed reads the cached resource by a claim, in the view of an export of a third party. The consumers are on the other
// shard; one accepts the claim, and one does not.
func (s *shardedEnv) testClaimed(t *testing.T) {
	owner := &apisv1alpha2.APIExport{}
	if err := s.c.Get(shardtesting.In(t.Context(), s.provider), client.ObjectKey{Name: "flavors"}, owner); err != nil {
		t.Fatal(err)
	}
	claim := apisv1alpha2.PermissionClaim{
		GroupResource: apisv1alpha2.GroupResource{Group: flavors.Group, Resource: flavors.Resource}, Verbs: []string{"get", "list", "watch"}, IdentityHash: owner.Status.IdentityHash,
	}
	claimer := s.createWorkspace(t, "claimer", s.shard)
	s.shard.NewExport(t, claimer, "claimer", schema.GroupResource{Group: "claimer.example.com", Resource: "menus"}, "Menu", func(export *apisv1alpha2.APIExport) {
		export.Spec.PermissionClaims = []apisv1alpha2.PermissionClaim{claim}
	})
	reluctant := s.createWorkspace(t, "reluctant", s.consumers)
	bind(t, s.consumers, reluctant, s.provider, "flavors")
	accept := func(cluster string, state apisv1alpha2.AcceptablePermissionClaimState, selector apisv1alpha2.PermissionClaimSelector) error {
		return s.consumers.Client(t, s.consumers.Admin(t)).Create(shardtesting.In(t.Context(), cluster), &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "claimer"}, Spec: apisv1alpha2.APIBindingSpec{
			Reference:        apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: claimer, Name: "claimer"}},
			PermissionClaims: []apisv1alpha2.AcceptablePermissionClaim{{PermissionClaim: claim, State: state, Selector: selector}},
		}})
	}
	byLabels := apisv1alpha2.PermissionClaimSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"shown": "yes"}}}
	shardtesting.Eventually(t, "acceptance by labels to be refused", func(context.Context) error {
		err := accept(s.consumer, apisv1alpha2.ClaimAccepted, byLabels)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec.permissionClaims[0].selector") {
			return fmt.Errorf("got %w", errors.Join(errors.New("another answer"), err))
		}
		return nil
	})
	all := apisv1alpha2.PermissionClaimSelector{MatchAll: true}
	if err := errors.Join(accept(s.consumer, apisv1alpha2.ClaimAccepted, all), accept(reluctant, apisv1alpha2.ClaimRejected, all)); err != nil {
		t.Fatal(err)
	}
	view := "/services/apiexport/" + claimer + "/claimer/clusters/"
	admin := s.consumers.Admin(t)
	single, every := s.flavorsClient(t, admin, view+s.consumer), s.flavorsClient(t, admin, view+"*")
	own, _, err := listQualified(t.Context(), s.flavorsIn(t, s.consumer), 0)
	if err != nil || len(own) == 0 {
		t.Fatalf("the consumer reads %v, %v", own, err)
	}
	expect := func(what string, list func(context.Context) ([]string, string, error), want []string) (version string) {
		t.Helper()
		shardtesting.Eventually(t, what, func(ctx context.Context) error {
			got, resourceVersion, err := list(ctx)
			if version = resourceVersion; err != nil || !slices.Equal(got, want) {
				return fmt.Errorf("got %v, want %v, %w", got, want, errors.Join(errors.New("the list differs"), err))
			}
			return nil
		})
		return version
	}
	inAll := func(ctx context.Context) ([]string, string, error) { return listQualified(ctx, every, 0) }
	expect("the consumer's objects in its logical cluster", func(ctx context.Context) ([]string, string, error) { return listQualified(ctx, single, 0) }, own)
	version := expect("the consumer's objects in all logical clusters", inAll, own)
	if _, err := single.Get(t.Context(), "sweet", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := s.flavorsClient(t, admin, view+reluctant).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a consumer that rejects the claim: %v", err)
	}
	if err := single.Delete(t.Context(), "sweet", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a deletion: %v", err)
	}
	if response, body := shardtesting.Send(t, admin, http.MethodGet, view+"*/apis/example.com/v1", ""); response.StatusCode != http.StatusOK || !strings.Contains(body, `"verbs":["get","list","watch"]`) {
		t.Errorf("discovery: %d %s", response.StatusCode, body)
	}

	// A claim that is no longer accepted ends watches, and shows nothing.
	events := startWatch(t, every, version)
	consumers := s.consumers.Client(t, s.consumers.Admin(t))
	for _, cluster := range []string{s.consumer, reluctant} {
		if err := consumers.Delete(shardtesting.In(t.Context(), cluster), &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "claimer"}}); err != nil {
			t.Fatal(err)
		}
	}
	expectExpired(t, events)
	expect("nothing without an accepted claim", inAll, nil)
	if err := consumers.Delete(shardtesting.In(t.Context(), reluctant), &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "flavors"}}); err != nil {
		t.Fatal(err)
	}
}
