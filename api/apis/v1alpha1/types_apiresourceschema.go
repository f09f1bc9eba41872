package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// APIResourceSchema describes a resource in the same way as a CustomResourceDefinition. The resource is not served by
// itself, but exported by an APIExport. The name must have the format "<prefix>.<plural>.<group or core>". The spec is
// immutable.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type APIResourceSchema struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes the resource. Immutable.
	// +optional
	Spec APIResourceSchemaSpec `json:"spec,omitempty"`
}

// APIResourceSchemaSpec describes a resource.
//
// +kubebuilder:validation:XValidation:rule="size(self.versions) <= 1 || has(self.conversion)",message="conversion must be specified when there are several versions"
type APIResourceSchemaSpec struct {
	// group is the API group of the resource. Empty for the core group.
	// +required
	Group string `json:"group"`

	// names specifies the names of the resource.
	// +required
	Names apiextensionsv1.CustomResourceDefinitionNames `json:"names"`

	// scope is the scope of the resource. Must be Cluster or Namespaced.
	// +required
	// +kubebuilder:validation:Enum=Cluster;Namespaced
	Scope apiextensionsv1.ResourceScope `json:"scope"`

	// versions is the list of versions of the resource.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	Versions []APIResourceVersion `json:"versions"`

	// nameValidation is the validation that is applied to object names. Defaults to DNS1123Subdomain.
	// +optional
	// +kubebuilder:default=DNS1123Subdomain
	NameValidation NameValidation `json:"nameValidation,omitempty"`

	// conversion defines how objects are converted between versions. Required if there is more than one version.
	// +optional
	Conversion *CustomResourceConversion `json:"conversion,omitempty"`
}

// NameValidation is a validation of object names.
//
// +kubebuilder:validation:Enum=DNS1123Subdomain;PathSegmentName
type NameValidation string

const (
	// NameValidationDNS1123Subdomain allows lower-case names with dashes and dots, like most Kubernetes resources.
	NameValidationDNS1123Subdomain NameValidation = "DNS1123Subdomain"
	// NameValidationPathSegmentName allows all names that are valid URL path segments.
	NameValidationPathSegmentName NameValidation = "PathSegmentName"
)

// APIResourceVersion describes a version of a resource.
type APIResourceVersion struct {
	// name is the name of the version.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$`
	Name string `json:"name"`

	// served indicates whether the version is served to clients. Defaults to true.
	// +required
	// +kubebuilder:default=true
	Served bool `json:"served"`

	// storage indicates whether objects are stored in the version. Must be true for exactly one version.
	// +required
	Storage bool `json:"storage"`

	// deprecated indicates that the version is deprecated. If true, a warning is returned to clients that use the
	// version.
	// +optional
	Deprecated bool `json:"deprecated,omitempty"`

	// deprecationWarning is the text of the warning that is returned to clients that use a deprecated version.
	// +optional
	DeprecationWarning *string `json:"deprecationWarning,omitempty"`

	// schema is the schema for the validation of objects. Must be a JSONSchemaProps of apiextensions.k8s.io/v1.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +structType=atomic
	Schema runtime.RawExtension `json:"schema"`

	// subresources specifies the subresources of the resource.
	// +optional
	Subresources apiextensionsv1.CustomResourceSubresources `json:"subresources,omitempty"`

	// additionalPrinterColumns is the list of additional columns in Tables, as printed by kubectl get.
	// +optional
	// +listType=map
	// +listMapKey=name
	AdditionalPrinterColumns []apiextensionsv1.CustomResourceColumnDefinition `json:"additionalPrinterColumns,omitempty"`

	// selectableFields is the list of fields that can be used in field selectors.
	// +optional
	// +listType=atomic
	SelectableFields []apiextensionsv1.SelectableField `json:"selectableFields,omitempty"`
}

// CustomResourceConversion defines how objects are converted between versions.
//
// +kubebuilder:validation:XValidation:rule="(self.strategy == 'None' && !has(self.webhook)) || (self.strategy == 'Webhook' && has(self.webhook))",message="webhook must be specified if strategy is Webhook, and only then"
type CustomResourceConversion struct {
	// strategy is the conversion strategy. Must be None or Webhook. None changes only the apiVersion.
	// +required
	// +kubebuilder:validation:Enum=None;Webhook
	Strategy apiextensionsv1.ConversionStrategyType `json:"strategy"`

	// webhook configures the conversion webhook. Must be set if and only if strategy is Webhook.
	// +optional
	Webhook *WebhookConversion `json:"webhook,omitempty"`
}

// WebhookConversion configures a conversion webhook.
type WebhookConversion struct {
	// clientConfig specifies how to call the webhook.
	// +optional
	ClientConfig *WebhookClientConfig `json:"clientConfig,omitempty"`

	// conversionReviewVersions is the list of ConversionReview versions that the webhook supports, in order of
	// preference.
	// +required
	// +listType=atomic
	ConversionReviewVersions []string `json:"conversionReviewVersions"`
}

// WebhookClientConfig specifies how to call a webhook. References to Services are not supported, because consumers do
// not have Services.
type WebhookClientConfig struct {
	// url is the URL of the webhook.
	// +optional
	// +kubebuilder:validation:Format=uri
	URL string `json:"url,omitempty"`

	// caBundle is a PEM bundle of CA certificates for the validation of the server certificate of the webhook. If
	// unset, the system trust roots are used.
	// +optional
	CABundle []byte `json:"caBundle,omitempty"`
}

// APIResourceSchemaList is a list of APIResourceSchemas.
//
// +kubebuilder:object:root=true
type APIResourceSchemaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []APIResourceSchema `json:"items"`
}
