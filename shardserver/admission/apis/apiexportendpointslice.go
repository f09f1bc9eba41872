package apis

import (
	"context"

	"k8s.io/apiserver/pkg/admission"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
)

// apiExportEndpointSlice requires the permission to bind an export for slices of its endpoints, whose addresses
// disclose where its consumers are.
type apiExportEndpointSlice struct {
	*admission.Handler
	access ExportAccess
}

// NewAPIExportEndpointSlice returns the plug-in apis.kcp.io/APIExportEndpointSlice.
func NewAPIExportEndpointSlice(config rules.Config) admission.Interface {
	return &apiExportEndpointSlice{admission.NewHandler(admission.Create, admission.Update), NewExportAccess(config)}
}

// Validate implements admission.ValidationInterface.
func (s *apiExportEndpointSlice) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != rules.APIExportEndpointSlices || a.GetSubresource() != "" {
		return nil
	}
	slice, err := rules.ObjectOf[*apisv1alpha1.APIExportEndpointSlice](a.GetObject())
	if err != nil {
		return err
	}
	if a.GetOperation() == admission.Update {
		old, err := rules.ObjectOf[*apisv1alpha1.APIExportEndpointSlice](a.GetOldObject())
		if err != nil || old.Spec.APIExport == slice.Spec.APIExport {
			return err
		}
	}
	own, reference, err := referenceIn(ctx, slice.Spec.APIExport.Path, slice.Spec.APIExport.Name)
	if err != nil {
		return rules.Forbid(a, "spec.export: %w", err)
	}
	export, err := s.access.locate(ctx, own, reference)
	if err != nil || !s.access.CanBind(ctx, a, export) {
		return forbidBinding(a, reference)
	}
	return nil
}
