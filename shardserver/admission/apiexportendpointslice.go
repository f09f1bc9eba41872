package admission

import (
	"context"

	"k8s.io/apiserver/pkg/admission"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
)

// apiExportEndpointSlice requires the permission to bind an export for slices of its endpoints, whose addresses
// disclose where its consumers are.
type apiExportEndpointSlice struct {
	*admission.Handler
	access exportAccess
}

func newAPIExportEndpointSlice(config Config) admission.Interface {
	return &apiExportEndpointSlice{admission.NewHandler(admission.Create, admission.Update), newExportAccess(config)}
}

// Validate implements admission.ValidationInterface.
func (s *apiExportEndpointSlice) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != apiExportEndpointSlices || a.GetSubresource() != "" {
		return nil
	}
	slice, err := objectOf[*apisv1alpha1.APIExportEndpointSlice](a.GetObject())
	if err != nil {
		return err
	}
	if a.GetOperation() == admission.Update {
		old, err := objectOf[*apisv1alpha1.APIExportEndpointSlice](a.GetOldObject())
		if err != nil || old.Spec.APIExport == slice.Spec.APIExport {
			return err
		}
	}
	own, reference, err := referenceIn(ctx, slice.Spec.APIExport.Path, slice.Spec.APIExport.Name)
	if err != nil {
		return forbid(a, "spec.export: %w", err)
	}
	export, err := s.access.locate(ctx, own, reference)
	if err != nil || !s.access.canBind(ctx, a, export) {
		return forbidBinding(a, reference)
	}
	return nil
}
