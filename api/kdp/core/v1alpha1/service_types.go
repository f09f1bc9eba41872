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
	// ReasonNameTaken means that an object which would have to be created exists, and belongs to somebody else.
	ReasonNameTaken = "NameTaken"
	// ReasonWaitingForToken means that the token of the agent has not been issued yet.
	ReasonWaitingForToken = "WaitingForToken"
	// ReasonFailed means that a request failed. It is repeated.
	ReasonFailed = "Failed"
)

// Service is an API group that an organisation offers in a catalogue. It becomes an APIExport of the same name, and a Secret
// with a kubeconfig for the agent that publishes resources in that group.
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

	// spec is what is offered.
	// +required
	Spec ServiceSpec `json:"spec"`

	// status is the observed state.
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
	// apiGroup is the API group of everything that the service publishes. No two services of an organisation have the same.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="apiGroup cannot be changed"
	APIGroup string `json:"apiGroup"`

	// catalogMetadata is what a catalogue shows.
	// +optional
	CatalogMetadata CatalogMetadata `json:"catalogMetadata,omitzero"`

	// kubeconfig is the Secret that receives the kubeconfig of the agent, in its key "kubeconfig". By default it is
	// "<name>-kubeconfig" in namespace "default".
	// +optional
	Kubeconfig *SecretReference `json:"kubeconfig,omitempty"`
}

// CatalogMetadata is what a catalogue shows.
type CatalogMetadata struct {
	// title is the headline.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Title string `json:"title,omitempty"`

	// description is a text in Markdown.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Description string `json:"description,omitempty"`

	// documentationURL is where to read more.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	DocumentationURL string `json:"documentationURL,omitempty"`

	// logo is a picture: a URL, also one with data.
	// +optional
	// +kubebuilder:validation:MaxLength=131072
	Logo string `json:"logo,omitempty"`
}

// SecretReference is the name of a Secret.
type SecretReference struct {
	// name is the name.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// namespace is the namespace; "default" if it is not set.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// ServiceStatus is the observed state of a Service.
type ServiceStatus struct {
	// conditions has Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
