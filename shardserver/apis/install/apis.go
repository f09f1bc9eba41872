package install

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/shardserver/apis/apis/conversion"
)

// addAPIs registers apis.kcp.io. Exports and bindings are stored and handled as v1alpha2 and converted to and from
// v1alpha1, which contains all other kinds.
func addAPIs(scheme *runtime.Scheme) error {
	for _, add := range []func(*runtime.Scheme) error{apisv1alpha2.AddToScheme, apisv1alpha1.AddToScheme, conversion.Register} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("registering %s: %w", apisv1alpha2.GroupName, err)
		}
	}
	scheme.AddKnownTypes(internalVersion(apisv1alpha2.GroupName),
		&apisv1alpha2.APIExport{}, &apisv1alpha2.APIExportList{},
		&apisv1alpha2.APIBinding{}, &apisv1alpha2.APIBindingList{},
		&apisv1alpha1.APIResourceSchema{}, &apisv1alpha1.APIResourceSchemaList{},
		&apisv1alpha1.APIConversion{}, &apisv1alpha1.APIConversionList{},
		&apisv1alpha1.APIExportEndpointSlice{}, &apisv1alpha1.APIExportEndpointSliceList{})
	if err := scheme.SetVersionPriority(apisv1alpha2.SchemeGroupVersion, apisv1alpha1.SchemeGroupVersion); err != nil {
		return fmt.Errorf("ordering the versions of %s: %w", apisv1alpha2.GroupName, err)
	}
	addAPIDefaults(scheme)
	return nil
}

// DefaultAPIExport sets defaults.
func DefaultAPIExport(export *apisv1alpha2.APIExport) {
	for i := range export.Spec.Resources {
		if storage := &export.Spec.Resources[i].Storage; storage.CRD == nil && storage.Virtual == nil {
			storage.CRD = &apisv1alpha2.ResourceSchemaStorageCRD{}
		}
	}
}

// DefaultAPIBinding sets defaults.
func DefaultAPIBinding(binding *apisv1alpha2.APIBinding) {
	if binding.Spec.DeletionPolicy == "" {
		binding.Spec.DeletionPolicy = apisv1alpha2.DeletionPolicyDelete
	}
}

// DefaultAPIResourceSchema sets defaults, except for served versions, whose default is set by decoding.
func DefaultAPIResourceSchema(schema *apisv1alpha1.APIResourceSchema) {
	if schema.Spec.NameValidation == "" {
		schema.Spec.NameValidation = apisv1alpha1.NameValidationDNS1123Subdomain
	}
}

// addAPIDefaults registers the defaulting functions, which run at every decoding. Conversions, endpoint slices, and
// bindings and exports of v1alpha1 have none.
func addAPIDefaults(scheme *runtime.Scheme) {
	scheme.AddTypeDefaultingFunc(&apisv1alpha2.APIExport{}, func(obj any) { DefaultAPIExport(obj.(*apisv1alpha2.APIExport)) })
	scheme.AddTypeDefaultingFunc(&apisv1alpha2.APIExportList{}, func(obj any) {
		items := obj.(*apisv1alpha2.APIExportList).Items
		for i := range items {
			DefaultAPIExport(&items[i])
		}
	})
	scheme.AddTypeDefaultingFunc(&apisv1alpha2.APIBinding{}, func(obj any) { DefaultAPIBinding(obj.(*apisv1alpha2.APIBinding)) })
	scheme.AddTypeDefaultingFunc(&apisv1alpha2.APIBindingList{}, func(obj any) {
		items := obj.(*apisv1alpha2.APIBindingList).Items
		for i := range items {
			DefaultAPIBinding(&items[i])
		}
	})
	scheme.AddTypeDefaultingFunc(&apisv1alpha1.APIResourceSchema{}, func(obj any) { DefaultAPIResourceSchema(obj.(*apisv1alpha1.APIResourceSchema)) })
	scheme.AddTypeDefaultingFunc(&apisv1alpha1.APIResourceSchemaList{}, func(obj any) {
		items := obj.(*apisv1alpha1.APIResourceSchemaList).Items
		for i := range items {
			DefaultAPIResourceSchema(&items[i])
		}
	})
}
