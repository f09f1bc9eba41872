package apis

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/internal/subresources"
	"github.com/atoll-dev/atoll/internal/syncerview"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/apiexport/claimpolicy"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apis/apis/conversion"
)

// apiExport validates exports: resources and claims must not be ambiguous, and a resource keeps its scope and kind.
type apiExport struct {
	*admission.Handler
	served   servedKinds
	policies claimpolicy.Reader
}

// NewAPIExport returns the plug-in apis.kcp.io/APIExport.
func NewAPIExport(config rules.Config) admission.Interface {
	return apiExport{admission.NewHandler(admission.Create, admission.Update), servedKinds{config.Exports}, claimpolicy.NewReader(config.Registry)}
}

// Admit implements admission.MutationInterface.
func (e apiExport) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != rules.APIExports || a.GetSubresource() != "" {
		return nil
	}
	export, err := rules.ObjectOf[*apisv1alpha2.APIExport](a.GetObject())
	if err != nil {
		return err
	}
	return e.served.record(ctx, a, export)
}

// Validate implements admission.ValidationInterface.
func (e apiExport) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != rules.APIExports || a.GetSubresource() != "" {
		return nil
	}
	export, err := rules.ObjectOf[*apisv1alpha2.APIExport](a.GetObject())
	if err != nil {
		return err
	}
	if isV1alpha1(a) {
		if err := conversion.CheckExportAnnotations(export); err != nil {
			return rules.Forbid(a, "%w", err)
		}
	}
	old, err := oldExport(a)
	if err != nil {
		return err
	}
	if err := e.validatePolicies(ctx, a, export, old); err != nil {
		return err
	}
	errs, err := e.served.validateExport(ctx, a, export)
	if err != nil {
		return err
	}
	if len(errs) > 0 {
		return rules.Forbid(a, "%w", errs.ToAggregate())
	}
	return validateSyncerView(a, export)
}

// validateSyncerView validates the description of the syncer's view, if it changes.
func validateSyncerView(a admission.Attributes, export *apisv1alpha2.APIExport) error {
	text := export.Annotations[syncerview.Annotation]
	if a.GetOperation() == admission.Update {
		if old, err := rules.ObjectOf[*apisv1alpha2.APIExport](a.GetOldObject()); err != nil || old.Annotations[syncerview.Annotation] == text {
			return err
		}
	}
	if text == "" {
		return nil
	}
	if _, err := syncerview.Parse(text); err != nil {
		return rules.Forbid(a, "%w", err)
	}
	return nil
}

// validateExport validates resources and claims. isPermitted reports whether a claim of a resource that is not built in needs no identity.
func validateExport(spec apisv1alpha2.APIExportSpec, isPermitted func(apisv1alpha2.PermissionClaim) bool) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	for i, resource := range spec.Resources {
		named, subresource := subresources.Split(resource)
		if subresource != "" {
			named.Resource = subresource
		}
		if suffix := schemaSuffix(named.Resource, named.Group); !strings.HasSuffix(resource.Schema, suffix) {
			errs = append(errs, field.Invalid(path.Child("resources").Index(i).Child("schema"), resource.Schema, "must end in "+suffix))
		}
	}
	for i, claim := range spec.PermissionClaims {
		at := path.Child("permissionClaims").Index(i)
		claimed, subresource := apiindex.ClaimedResource(claim)
		switch needsIdentity := apiindex.NeedsIdentity(claimed); {
		case needsIdentity && subresource != "" && !subresources.IsCustom(subresource):
			errs = append(errs, field.Invalid(at.Child("resource"), claim.Resource, "the claim of the resource includes it; only custom subresources of API types that are not built-in can be claimed"))
		case needsIdentity && claim.IdentityHash == "" && !isPermitted(claim):
			errs = append(errs, field.Invalid(at.Child("identityHash"), "", "identityHash is required for API types that are not built-in"))
		}
		if selector := claim.DefaultSelector; subresource != "" && selector != nil && hasLabels(*selector) {
			errs = append(errs, field.Invalid(at.Child("defaultSelector"), *selector, subresourceSelector))
		}
	}
	return errs
}

// isV1alpha1 reports whether the client sent v1alpha1. The object in the attributes has been converted.
func isV1alpha1(a admission.Attributes) bool {
	return a.GetKind().Version == apisv1alpha1.SchemeGroupVersion.Version
}
