package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

// PublishedResource publishes one version of a resource of the service cluster into workspaces, in the API group of the Service.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Group",type=string,JSONPath=`.spec.resource.apiGroup`
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.resource.kind`
// +kubebuilder:printcolumn:name="Schema",type=string,JSONPath=`.status.resourceSchemaName`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PublishedResource struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is published, and how objects are synced.
	// +required
	Spec PublishedResourceSpec `json:"spec"`

	// status is the observed state.
	// +optional
	Status syncagentv1alpha1.PublishedResourceStatus `json:"status,omitzero"`
}

// PublishedResourceList is a list of PublishedResources.
// +kubebuilder:object:root=true
type PublishedResourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PublishedResource `json:"items"`
}

// PublishedResourceSpec is the desired state of a PublishedResource.
type PublishedResourceSpec struct {
	// resource is the resource of the service cluster.
	// +required
	Resource SourceResource `json:"resource"`

	// filter restricts which objects of workspaces are synced. By default, all are.
	// +optional
	Filter *ResourceFilter `json:"filter,omitempty"`

	// naming decides about name and namespace of the copy on the service cluster. By default, the namespace is
	// $remoteClusterName, the name $remoteNamespaceHash-$remoteNameHash.
	// +optional
	Naming *syncagentv1alpha1.ResourceNaming `json:"naming,omitempty"`

	// projection changes how the resource is named in workspaces. Its group is that of the Service.
	// +optional
	Projection *ResourceProjection `json:"projection,omitempty"`

	// related are other objects that belong to an object, such as the Secret with its credentials.
	// +optional
	Related []RelatedResource `json:"related,omitempty"`
}

// SourceResource is one version of a resource of the service cluster.
type SourceResource struct {
	// apiGroup is the API group; empty for the core group.
	// +required
	APIGroup string `json:"apiGroup"`

	// version is the version.
	// +required
	// +kubebuilder:validation:MinLength=1
	Version string `json:"version"`

	// kind is the kind.
	// +required
	// +kubebuilder:validation:MinLength=1
	Kind string `json:"kind"`
}

// ResourceFilter selects objects.
type ResourceFilter struct {
	// namespace is the name of a namespace in workspaces, or a label selector of namespaces.
	// +optional
	Namespace *apiextensionsv1.JSON `json:"namespace,omitempty"`

	// resource is matched against the labels of the object.
	// +optional
	Resource *metav1.LabelSelector `json:"resource,omitempty"`
}

// ResourceProjection changes names of the resource; what is not set stays as on the service cluster.
type ResourceProjection struct {
	// version is the name of the version in workspaces.
	// +optional
	Version string `json:"version,omitempty"`

	// scope is the scope in workspaces.
	// +optional
	Scope syncagentv1alpha1.ResourceScope `json:"scope,omitempty"`

	// kind is the kind in workspaces.
	// +optional
	Kind string `json:"kind,omitempty"`

	// plural is the name of the resource in workspaces, in lower case. By default, it follows the kind.
	// +optional
	Plural string `json:"plural,omitempty"`

	// shortNames replaces the short names, also by an empty list.
	// +optional
	ShortNames *[]string `json:"shortNames,omitempty"`

	// categories replaces the categories, also by an empty list.
	// +optional
	Categories *[]string `json:"categories,omitempty"`
}

// RelatedResourceOrigin is the side that decides about the content of related objects.
// +kubebuilder:validation:Enum=service;platform
type RelatedResourceOrigin string

// The origins.
const (
	RelatedResourceOriginService  RelatedResourceOrigin = "service"
	RelatedResourceOriginPlatform RelatedResourceOrigin = "platform"
)

// RelatedResource is one object that belongs to an object of the published resource.
type RelatedResource struct {
	// identifier is unique within the PublishedResource. By default, it is made of kind and position.
	// +optional
	// +kubebuilder:validation:MaxLength=60
	Identifier string `json:"identifier,omitempty"`

	// origin is the side that decides about the content.
	// +required
	Origin RelatedResourceOrigin `json:"origin"`

	// kind is ConfigMap or Secret.
	// +required
	// +kubebuilder:validation:Enum=ConfigMap;Secret
	Kind string `json:"kind"`

	// reference says where the object's name is.
	// +required
	Reference RelatedResourceReference `json:"reference"`
}

// RelatedResourceReference says where name and namespace of a related object are in the primary object, on each side.
type RelatedResourceReference struct {
	// name is the field with the name.
	// +required
	Name ResourceLocator `json:"name"`

	// namespace is the field with the namespace. By default, it is the namespace of the primary object.
	// +optional
	Namespace *ResourceLocator `json:"namespace,omitempty"`
}

// ResourceLocator is a field of an object.
type ResourceLocator struct {
	// path is the field, dotted.
	// +required
	Path string `json:"path"`

	// regex changes the value.
	// +optional
	Regex *syncagentv1alpha1.RegularExpression `json:"regex,omitempty"`
}
