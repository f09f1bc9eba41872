package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// APIResourceSchema describes one resource, as a CustomResourceDefinition does, but serves nothing by itself: an
// APIExport offers it. Its spec never changes. Its name is "<prefix>.<plural>.<group, or core>".
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

	// names the resource goes by.
	// +required
	Names apiextensionsv1.CustomResourceDefinitionNames `json:"names"`

	// scope says whether objects live in namespaces.
	// +required
	// +kubebuilder:validation:Enum=Cluster;Namespaced
	Scope apiextensionsv1.ResourceScope `json:"scope"`

	// versions of the resource.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	Versions []APIResourceVersion `json:"versions"`

	// nameValidation says which names objects may have.
	// +optional
	// +kubebuilder:default=DNS1123Subdomain
	NameValidation NameValidation `json:"nameValidation,omitempty"`

	// conversion says how objects become those of another version.
	// +optional
	Conversion *CustomResourceConversion `json:"conversion,omitempty"`
}

// NameValidation says which names objects may have.
//
// +kubebuilder:validation:Enum=DNS1123Subdomain;PathSegmentName
type NameValidation string

const (
	// NameValidationDNS1123Subdomain allows lower-case names with dashes and dots, as most of Kubernetes.
	NameValidationDNS1123Subdomain NameValidation = "DNS1123Subdomain"
	// NameValidationPathSegmentName allows whatever can stand in a URL between two slashes.
	NameValidationPathSegmentName NameValidation = "PathSegmentName"
)

// APIResourceVersion is one version of a resource.
type APIResourceVersion struct {
	// name of the version.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$`
	Name string `json:"name"`

	// served tells whether clients can use the version.
	// +required
	// +kubebuilder:default=true
	Served bool `json:"served"`

	// storage tells whether objects are stored in the version. Exactly one is.
	// +required
	Storage bool `json:"storage"`

	// deprecated warns who uses the version.
	// +optional
	Deprecated bool `json:"deprecated,omitempty"`

	// deprecationWarning is the text of that warning.
	// +optional
	DeprecationWarning *string `json:"deprecationWarning,omitempty"`

	// schema is what objects must look like: a JSONSchemaProps of apiextensions.k8s.io/v1.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +structType=atomic
	Schema runtime.RawExtension `json:"schema"`

	// subresources are those that objects have.
	// +optional
	Subresources apiextensionsv1.CustomResourceSubresources `json:"subresources,omitempty"`

	// additionalPrinterColumns are what kubectl get shows.
	// +optional
	// +listType=map
	// +listMapKey=name
	AdditionalPrinterColumns []apiextensionsv1.CustomResourceColumnDefinition `json:"additionalPrinterColumns,omitempty"`

	// selectableFields are what field selectors may ask for.
	// +optional
	// +listType=atomic
	SelectableFields []apiextensionsv1.SelectableField `json:"selectableFields,omitempty"`
}

// CustomResourceConversion says how objects become those of another version.
//
// +kubebuilder:validation:XValidation:rule="(self.strategy == 'None' && !has(self.webhook)) || (self.strategy == 'Webhook' && has(self.webhook))",message="webhook must be specified if strategy is Webhook, and only then"
type CustomResourceConversion struct {
	// strategy is the way: None changes the apiVersion alone, Webhook asks one.
	// +required
	// +kubebuilder:validation:Enum=None;Webhook
	Strategy apiextensionsv1.ConversionStrategyType `json:"strategy"`

	// webhook says whom to ask.
	// +optional
	Webhook *WebhookConversion `json:"webhook,omitempty"`
}

// WebhookConversion says which webhook converts.
type WebhookConversion struct {
	// clientConfig is where the webhook is.
	// +optional
	ClientConfig *WebhookClientConfig `json:"clientConfig,omitempty"`

	// conversionReviewVersions are the versions of ConversionReview that the webhook understands, the preferred first.
	// +required
	// +listType=atomic
	ConversionReviewVersions []string `json:"conversionReviewVersions"`
}

// WebhookClientConfig is where a webhook is. It cannot be a Service: consumers have none.
type WebhookClientConfig struct {
	// url of the webhook.
	// +optional
	// +kubebuilder:validation:Format=uri
	URL string `json:"url,omitempty"`

	// caBundle is a PEM bundle that the webhook's server is verified by. Left out, those of the system are.
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
