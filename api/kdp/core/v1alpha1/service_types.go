package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConditionReady of a Service says whether its APIExport and the kubeconfig of its agent exist.
const ConditionReady = "Ready"

// Reasons of the condition Ready.
const (
	// ReasonOffered means that the APIExport and the kubeconfig exist.
	ReasonOffered = "Offered"
	// ReasonAPIGroupTaken means that another Service has the API group.
	ReasonAPIGroupTaken = "APIGroupTaken"
	// ReasonNameTaken means that an object which would have to be created exists, and was not created for the Service.
	ReasonNameTaken = "NameTaken"
	// ReasonWaitingForToken means that the token of the agent has not been issued yet.
	ReasonWaitingForToken = "WaitingForToken"
	// ReasonFailed means that a request failed. It is repeated.
	ReasonFailed = "Failed"
)

// Service is an API group that an organisation offers in a catalogue. The controller creates an APIExport of the same
// name for it, and a Secret with a kubeconfig for the agent that publishes resources in that group.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Group",type=string,JSONPath=`.spec.apiGroup`
// +kubebuilder:printcolumn:name="Title",type=string,JSONPath=`.spec.catalogMetadata.title`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Service struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines what is offered.
	// +required
	Spec ServiceSpec `json:"spec"`

	// status is the observed state of the service.
	// +optional
	Status ServiceStatus `json:"status,omitzero"`
}

// ServiceList is a list of Services.
// +kubebuilder:object:root=true
type ServiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Service `json:"items"`
}

// ServiceSpec is the desired state of a Service.
type ServiceSpec struct {
	// apiGroup is the API group of all resources that the service publishes, with at least one dot. It is unique
	// among the Services of an organisation: if another one has it, the condition Ready has the reason APIGroupTaken.
	// Immutable.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="apiGroup cannot be changed"
	APIGroup string `json:"apiGroup"`

	// catalogMetadata is what a catalogue shows of the service. The APIExport has it as annotations.
	// +optional
	CatalogMetadata CatalogMetadata `json:"catalogMetadata,omitzero"`

	// kubeconfig names the Secret that receives the kubeconfig of the agent, in its key kubeconfig. Defaults to
	// "<name>-kubeconfig" in the namespace default.
	// +optional
	Kubeconfig *SecretReference `json:"kubeconfig,omitempty"`
}

// CatalogMetadata is what a catalogue shows of a service.
type CatalogMetadata struct {
	// title is the heading of the entry.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Title string `json:"title,omitempty"`

	// description describes the service, in Markdown.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Description string `json:"description,omitempty"`

	// documentationURL is the URL of the documentation of the service.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	DocumentationURL string `json:"documentationURL,omitempty"`

	// logo is the URL of a picture, which may be a data URL.
	// +optional
	// +kubebuilder:validation:MaxLength=131072
	Logo string `json:"logo,omitempty"`
}

// SecretReference names a Secret.
type SecretReference struct {
	// name is the name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// namespace is the namespace of the Secret. Defaults to default.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// ServiceStatus is the observed state of a Service.
type ServiceStatus struct {
	// conditions describe the state of the service; Ready is the only one.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
