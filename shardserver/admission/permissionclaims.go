package admission

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"

	"github.com/atoll-dev/atoll/shardserver/apiexport/claims"
)

// permissionClaims gives every object the labels of the claims by which providers see it, and takes off those that do
// not belong. Users cannot have a say in it: whatever they write is silently put right.
type permissionClaims struct {
	*admission.Handler
	index *claims.Index
}

func newPermissionClaims(config Config) admission.Interface {
	return permissionClaims{admission.NewHandler(admission.Create, admission.Update), config.Claims}
}

// Admit implements admission.MutationInterface. It looks at subresources, too: by the status or the finalizers of some
// kinds of Kubernetes, labels can be written.
func (p permissionClaims) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	object, wanted, err := p.look(ctx, a)
	if object == nil || err != nil {
		return err
	}
	if own := object.GetLabels(); !claims.LabelsMatch(own, wanted) {
		object.SetLabels(claims.ReplaceClaimLabels(own, wanted))
	}
	return nil
}

// Validate refuses what a later plug-in made of the labels. With a subresource most registries write the labels that are
// stored, right or wrong, which is not the user's fault.
func (p permissionClaims) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" {
		return nil
	}
	object, wanted, err := p.look(ctx, a)
	if object == nil || err != nil {
		return err
	}
	if !claims.LabelsMatch(object.GetLabels(), wanted) {
		return forbid(a, "labels of permission claims are for the system to set")
	}
	return nil
}

// look returns the object and the labels of claims that it has to carry, or no object if the request is not about one.
func (p permissionClaims) look(ctx context.Context, a admission.Attributes) (metav1.Object, map[string]string, error) {
	if p.index == nil || !writesLabels(a) {
		return nil, nil, nil
	}
	object, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil, nil, nil // without metadata there are no labels
	}
	wanted, err := p.index.Labels(ctx, a.GetResource().GroupResource(), object.GetLabels())
	if err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	return object, wanted, nil
}

// reviews are groups of questions to the server. They are not stored, and must not have labels.
var reviews = sets.New("authorization.k8s.io", "authentication.k8s.io")

// writesLabels tells whether a request may write the labels of a stored object. A Scale, and what is created below an
// object, is another.
func writesLabels(a admission.Attributes) bool {
	if reviews.Has(a.GetResource().Group) {
		return false
	}
	return a.GetSubresource() == "" || (a.GetOperation() == admission.Update && a.GetSubresource() != "scale")
}
