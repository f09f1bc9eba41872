package apis

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"

	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/apiexport/claims"
)

// permissionClaims sets the labels of the permission claims by which providers select objects, and removes stale ones.
// Users cannot change these labels: other values are corrected without an error.
type permissionClaims struct {
	*admission.Handler
	index *claims.Index
}

// NewPermissionClaims returns the plug-in apis.kcp.io/PermissionClaims.
func NewPermissionClaims(config rules.Config) admission.Interface {
	return permissionClaims{admission.NewHandler(admission.Create, admission.Update), config.Claims}
}

// Admit implements admission.MutationInterface. It handles subresources, too: the status or the finalizers subresource
// of some kinds of Kubernetes can change labels.
func (p permissionClaims) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	object, desired, err := p.claimLabels(ctx, a)
	if object == nil || err != nil {
		return err
	}
	if own := object.GetLabels(); !claims.LabelsMatch(own, desired) {
		object.SetLabels(claims.ReplaceClaimLabels(own, desired))
	}
	return nil
}

// Validate refuses objects whose labels are no longer those of the claims: a claim was accepted or withdrawn since Admit. No plug-in that tenants
// configure runs between both, so the labels are not the client's, and it is asked to repeat the request. With a subresource most registries
// keep the stored labels, correct or not, which the user's request cannot influence, so subresources are not validated.
func (p permissionClaims) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" {
		return nil
	}
	object, desired, err := p.claimLabels(ctx, a)
	if object == nil || err != nil {
		return err
	}
	if !claims.LabelsMatch(object.GetLabels(), desired) {
		return rules.Retry(a, "a permission claim")
	}
	return nil
}

// claimLabels returns the object and the claim labels that it must have, or no object if the request writes no labels.
func (p permissionClaims) claimLabels(ctx context.Context, a admission.Attributes) (metav1.Object, map[string]string, error) {
	if p.index == nil || !writesLabels(a) {
		return nil, nil, nil
	}
	object, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil, nil, nil // without metadata there are no labels
	}
	desired, err := p.index.Labels(ctx, a.GetResource().GroupResource(), object.GetLabels())
	if err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	return object, desired, nil
}

// reviewGroups are the API groups of review requests. They are not stored, and must not have labels.
var reviewGroups = sets.New("authorization.k8s.io", "authentication.k8s.io")

// writesLabels reports whether a request may write the labels of a stored object. A Scale, and an object that is
// created through a subresource, is another object.
func writesLabels(a admission.Attributes) bool {
	if reviewGroups.Has(a.GetResource().Group) {
		return false
	}
	return a.GetSubresource() == "" || (a.GetOperation() == admission.Update && a.GetSubresource() != "scale")
}
