package apis

import (
	"context"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/internal/subresources"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/apis/apis/conversion"
)

// apiBinding sets the label of the bound export on bindings and requires the permission to bind it.
type apiBinding struct {
	*admission.Handler
	access ExportAccess
}

// NewAPIBinding returns the plug-in apis.kcp.io/APIBinding.
func NewAPIBinding(config rules.Config) admission.Interface {
	return &apiBinding{admission.NewHandler(admission.Create, admission.Update), NewExportAccess(config)}
}

// Admit sets the label of the export on the binding, overwriting what the user sent.
func (b *apiBinding) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != rules.APIBindings || a.GetSubresource() != "" {
		return nil
	}
	binding, err := rules.ObjectOf[*apisv1alpha2.APIBinding](a.GetObject())
	if err != nil {
		return err
	}
	label, labelled := "", false
	export, err := b.exportOf(ctx, binding)
	switch {
	case err == nil:
		_, label = apiindex.ExportLabel(export)
		labelled = true
	case a.GetOperation() == admission.Update:
		// If the export is deleted or cannot be resolved now, the label keeps its value.
		old, err := rules.ObjectOf[*apisv1alpha2.APIBinding](a.GetOldObject())
		if err != nil {
			return err
		}
		label, labelled = old.Labels[apisv1alpha2.ExportLabelKey]
	}
	setExportLabel(binding, label, labelled)
	return nil
}

func setExportLabel(binding *apisv1alpha2.APIBinding, label string, labelled bool) {
	if current, ok := binding.Labels[apisv1alpha2.ExportLabelKey]; ok == labelled && current == label {
		return
	}
	labels := maps.Clone(binding.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	delete(labels, apisv1alpha2.ExportLabelKey)
	if labelled {
		labels[apisv1alpha2.ExportLabelKey] = label
	}
	binding.Labels = labels
}

// exportOf returns the export that a binding refers to.
func (b *apiBinding) exportOf(ctx context.Context, binding *apisv1alpha2.APIBinding) (bindings.ExportKey, error) {
	export := binding.Spec.Reference.Export
	if export == nil {
		return bindings.ExportKey{}, apierrors.NewNotFound(rules.APIExports, "")
	}
	own, reference, err := referenceIn(ctx, export.Path, export.Name)
	if err != nil {
		return bindings.ExportKey{}, err
	}
	return b.access.locate(ctx, own, reference)
}

// Validate implements admission.ValidationInterface.
func (b *apiBinding) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != rules.APIBindings {
		return nil
	}
	binding, err := rules.ObjectOf[*apisv1alpha2.APIBinding](a.GetObject())
	if err != nil {
		return err
	}
	old := &apisv1alpha2.APIBinding{}
	if a.GetOperation() == admission.Update {
		if old, err = rules.ObjectOf[*apisv1alpha2.APIBinding](a.GetOldObject()); err != nil {
			return err
		}
	}
	switch a.GetSubresource() {
	case "status":
		if old.Status.Phase != "" && binding.Status.Phase == "" {
			return rules.Forbid(a, "status.phase: cannot transition from %q to %q", old.Status.Phase, binding.Status.Phase)
		}
		return nil
	case "":
	default:
		return nil
	}
	if isV1alpha1(a) {
		if err := conversion.CheckBindingAnnotations(binding); err != nil {
			return rules.Forbid(a, "%w", err)
		}
	}
	if errs := validateSelectors(binding.Spec.PermissionClaims, field.NewPath("spec", "permissionClaims")); len(errs) > 0 {
		return rules.Forbid(a, "%w", errs.ToAggregate())
	}
	if err := b.validateVirtualClaims(ctx, a, binding, old); err != nil {
		return err
	}
	return b.validateExportChange(ctx, a, binding, old)
}

// validateVirtualClaims refuses to accept claims by labels on resources with virtual storage. Objects cannot be labelled there,
// so that such a claim would show nothing.
func (b *apiBinding) validateVirtualClaims(ctx context.Context, a admission.Attributes, binding, old *apisv1alpha2.APIBinding) error {
	var errs field.ErrorList
	for i, claim := range binding.Spec.PermissionClaims {
		wasAccepted := slices.ContainsFunc(old.Spec.PermissionClaims, func(before apisv1alpha2.AcceptablePermissionClaim) bool {
			return before.EqualGRI(claim.PermissionClaim) && before.State == apisv1alpha2.ClaimAccepted
		})
		if claim.IdentityHash == "" || claim.State != apisv1alpha2.ClaimAccepted || !hasLabels(claim.Selector) || wasAccepted {
			continue
		}
		virtual, err := b.isVirtual(ctx, claim.PermissionClaim)
		if err != nil {
			return err
		}
		if virtual {
			errs = append(errs, field.Invalid(field.NewPath("spec", "permissionClaims").Index(i).Child("selector"), claim.Selector,
				"must be matchAll: the claimed resource has virtual storage, whose objects cannot be selected by labels"))
		}
	}
	if len(errs) > 0 {
		return rules.Forbid(a, "%w", errs.ToAggregate())
	}
	return nil
}

// isVirtual reports whether an export with the identity of a claim serves the resource from virtual storage.
func (b *apiBinding) isVirtual(ctx context.Context, claim apisv1alpha2.PermissionClaim) (bool, error) {
	exports, err := b.access.exports.ListByIdentity(ctx, claim.IdentityHash)
	if err != nil {
		return false, err
	}
	for _, export := range exports {
		for _, resource := range export.Spec.Resources {
			if resource.Group == claim.Group && resource.Name == claim.Resource && resource.Storage.Virtual != nil && !subresources.IsEntry(resource) {
				return true, nil
			}
		}
	}
	return false, nil
}

// validateExportChange validates a binding that is new or changes its export.
func (b *apiBinding) validateExportChange(ctx context.Context, a admission.Attributes, binding, old *apisv1alpha2.APIBinding) error {
	label, labelled := binding.Labels[apisv1alpha2.ExportLabelKey]
	if oldLabel, oldLabelled := old.Labels[apisv1alpha2.ExportLabelKey]; a.GetOperation() == admission.Update && label == oldLabel && labelled == oldLabelled {
		return nil
	}
	exportRef := binding.Spec.Reference.Export
	if exportRef == nil {
		return nil // a binding without export binds nothing
	}
	_, reference, err := referenceIn(ctx, exportRef.Path, exportRef.Name)
	if err != nil {
		// A reference that cannot be parsed discloses nothing, so the error is returned.
		return rules.Forbid(a, "spec.reference.export: %w", err)
	}
	export, err := b.exportOf(ctx, binding)
	if err != nil || !b.access.CanBind(ctx, a, export) {
		return forbidBinding(a, reference)
	}
	if a.GetOperation() == admission.Create && !labelled {
		return rules.Retry(a, "the export "+reference.String()) // the mutation did not find it
	}
	if _, want := apiindex.ExportLabel(export); label != want {
		return rules.Forbid(a, "label %s must be %q", apisv1alpha2.ExportLabelKey, want)
	}
	return nil
}

// subresourceSelector is the error of a claim of a subresource that selects by labels.
const subresourceSelector = "must be empty, or matchAll: the claim of the resource selects the objects whose subresource is claimed"

func hasLabels(selector apisv1alpha2.PermissionClaimSelector) bool {
	return len(selector.MatchLabels)+len(selector.MatchExpressions) > 0
}

// validateSelectors requires every claim to select its objects in exactly one way.
func validateSelectors(claims []apisv1alpha2.AcceptablePermissionClaim, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, claim := range claims {
		at := path.Index(i).Child("selector")
		byLabels := hasLabels(claim.Selector)
		_, subresource := apiindex.ClaimedResource(claim.PermissionClaim)
		switch {
		case subresource != "" && byLabels:
			errs = append(errs, field.Invalid(at, claim.Selector, subresourceSelector))
		case subresource == "" && claim.Selector.MatchAll == byLabels:
			errs = append(errs, field.Invalid(at, claim.Selector, "must have either matchAll, or matchLabels and matchExpressions"))
		}
		errs = append(errs, metav1validation.ValidateLabelSelector(&claim.Selector.LabelSelector, metav1validation.LabelSelectorValidationOptions{}, at)...)
	}
	return errs
}

// NewAPIBindingFinalizer returns the plug-in apis.kcp.io/APIBindingDeletionFinalizer.
func NewAPIBindingFinalizer(rules.Config) admission.Interface {
	return rules.NewFinalizerGuard(rules.APIBindings, apisv1alpha2.APIBindingFinalizer)
}
