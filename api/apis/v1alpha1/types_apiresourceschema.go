package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// APIResourceSchema describes one resource like a CustomResourceDefinition, but does not serve it: an APIExport offers it.
// Its spec is immutable. Its name is "<prefix>.<plural>.<group, or core>".
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type APIResourceSchema struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the description.
	// +optional
	Spec APIResourceSchemaSpec `json:"spec,omitempty"`
}

// APIResourceSchemaSpec describes one resource.
//
// +kubebuilder:validation:XValidation:rule="size(self.versions) <= 1 || has(self.conversion)",message="conversion must be specified when there are several versions"
type APIResourceSchemaSpec struct {
	// group of the resource, empty for the core group.
	// +required
	Group string `json:"group"`

	// names of the resource.
	// +required
	Names apiextensionsv1.CustomResourceDefinitionNames `json:"names"`

	// scope is whether objects are namespaced.
	// +required
	// +kubebuilder:validation:Enum=Cluster;Namespaced
	Scope apiextensionsv1.ResourceScope `json:"scope"`

	// versions of the resource.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	Versions []APIResourceVersion `json:"versions"`

	// nameValidation is the validation of object names.
	// +optional
	// +kubebuilder:default=DNS1123Subdomain
	NameValidation NameValidation `json:"nameValidation,omitempty"`

	// conversion defines how objects are converted between versions.
	// +optional
	Conversion *CustomResourceConversion `json:"conversion,omitempty"`
}

// NameValidation is the validation of object names.
//
// +kubebuilder:validation:Enum=DNS1123Subdomain;PathSegmentName
type NameValidation string

const (
	// NameValidationDNS1123Subdomain allows lower-case names with dashes and dots, as most of Kubernetes.
	NameValidationDNS1123Subdomain NameValidation = "DNS1123Subdomain"
	// NameValidationPathSegmentName allows all names that are valid URL path segments.
	NameValidationPathSegmentName NameValidation = "PathSegmentName"
)

// APIResourceVersion is one version of a resource.
type APIResourceVersion struct {
	// name of the version.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$`
	Name string `json:"name"`

	// served is whether clients can use the version.
	// +required
	// +kubebuilder:default=true
	Served bool `json:"served"`

	// storage is whether objects are stored in the version. It is true for exactly one version.
	// +required
	Storage bool `json:"storage"`

	// deprecated makes the server return a warning to clients that use the version.
	// +optional
	Deprecated bool `json:"deprecated,omitempty"`

	// deprecationWarning is the text of that warning.
	// +optional
	DeprecationWarning *string `json:"deprecationWarning,omitempty"`

	// schema validates objects. It is a JSONSchemaProps of apiextensions.k8s.io/v1.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +structType=atomic
	Schema runtime.RawExtension `json:"schema"`

	// subresources are the subresources of objects.
	// +optional
	Subresources apiextensionsv1.CustomResourceSubresources `json:"subresources,omitempty"`

	// additionalPrinterColumns are additional columns in Tables, as kubectl get prints them.
	// +optional
	// +listType=map
	// +listMapKey=name
	AdditionalPrinterColumns []apiextensionsv1.CustomResourceColumnDefinition `json:"additionalPrinterColumns,omitempty"`

	// selectableFields are the fields that field selectors may use.
	// +optional
	// +listType=atomic
	SelectableFields []apiextensionsv1.SelectableField `json:"selectableFields,omitempty"`
}

// CustomResourceConversion defines how objects are converted between versions.
//
// +kubebuilder:validation:XValidation:rule="(self.strategy == 'None' && !has(self.webhook)) || (self.strategy == 'Webhook' && has(self.webhook))",message="webhook must be specified if strategy is Webhook, and only then"
type CustomResourceConversion struct {
	// strategy is None, which changes only the apiVersion, or Webhook.
	// +required
	// +kubebuilder:validation:Enum=None;Webhook
	Strategy apiextensionsv1.ConversionStrategyType `json:"strategy"`

	// webhook configures the conversion webhook.
	// +optional
	Webhook *WebhookConversion `json:"webhook,omitempty"`
}

// WebhookConversion configures a conversion webhook.
type WebhookConversion struct {
	// clientConfig is how to call the webhook.
	// +optional
	ClientConfig *WebhookClientConfig `json:"clientConfig,omitempty"`

	// conversionReviewVersions are the versions of ConversionReview that the webhook understands, the preferred first.
	// +required
	// +listType=atomic
	ConversionReviewVersions []string `json:"conversionReviewVersions"`
}

// WebhookClientConfig is how to call a webhook. Services are not supported, because consumers have none.
type WebhookClientConfig struct {
	// url of the webhook.
	// +optional
	// +kubebuilder:validation:Format=uri
	URL string `json:"url,omitempty"`

	// caBundle is a PEM bundle of CAs for the webhook's server certificate. If unset, the system trust roots are used.
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
