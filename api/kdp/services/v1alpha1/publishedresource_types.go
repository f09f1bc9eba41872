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

	// spec defines what is published, and how objects are synced.
	// +required
	Spec PublishedResourceSpec `json:"spec"`

	// status is the observed state of the publication.
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
	// resource identifies the published resource of the service cluster.
	// +required
	Resource SourceResource `json:"resource"`

	// filter selects the objects of workspaces that are synced. If unset, all are synced.
	// +optional
	Filter *ResourceFilter `json:"filter,omitempty"`

	// naming defines the name and namespace of copies on the service cluster. By default, the namespace is
	// $remoteClusterName and the name is $remoteNamespaceHash-$remoteNameHash. A change does not rename existing
	// copies.
	// +optional
	Naming *syncagentv1alpha1.ResourceNaming `json:"naming,omitempty"`

	// projection changes the names of the resource in workspaces. Its API group is always that of the Service.
	// +optional
	Projection *ResourceProjection `json:"projection,omitempty"`

	// related are further objects that are synced together with an object, such as the Secret with its credentials.
	// +optional
	Related []RelatedResource `json:"related,omitempty"`
}

// SourceResource is one version of a resource of the service cluster.
type SourceResource struct {
	// apiGroup is the API group of the resource. Empty for the core group.
	// +required
	APIGroup string `json:"apiGroup"`

	// version is the published version of the resource.
	// +required
	// +kubebuilder:validation:MinLength=1
	Version string `json:"version"`

	// kind is the kind of the resource.
	// +required
	// +kubebuilder:validation:MinLength=1
	Kind string `json:"kind"`
}

// ResourceFilter selects objects. If both fields are set, an object must match both.
type ResourceFilter struct {
	// namespace is the name of a namespace, or a label selector of namespaces, in workspaces. If unset, objects in
	// all namespaces match.
	// +optional
	Namespace *apiextensionsv1.JSON `json:"namespace,omitempty"`

	// resource is a label selector for the objects. If unset, all match.
	// +optional
	Resource *metav1.LabelSelector `json:"resource,omitempty"`
}

// ResourceProjection changes names of the resource in workspaces. Fields that are unset keep the values of the
// service cluster.
type ResourceProjection struct {
	// version is the name of the version in workspaces.
	// +optional
	Version string `json:"version,omitempty"`

	// scope is the scope of the resource in workspaces: Cluster or Namespaced.
	// +optional
	Scope syncagentv1alpha1.ResourceScope `json:"scope,omitempty"`

	// kind is the kind in workspaces.
	// +optional
	Kind string `json:"kind,omitempty"`

	// plural is the plural name of the resource in workspaces, in lower case. By default, it is derived from the
	// kind.
	// +optional
	Plural string `json:"plural,omitempty"`

	// shortNames replace the short names. An empty list removes them.
	// +optional
	ShortNames *[]string `json:"shortNames,omitempty"`

	// categories replace the categories. An empty list removes them.
	// +optional
	Categories *[]string `json:"categories,omitempty"`
}

// RelatedResourceOrigin is the side with the original of related objects: the service cluster (service) or the
// workspace (platform).
// +kubebuilder:validation:Enum=service;platform
type RelatedResourceOrigin string

// The origins.
const (
	RelatedResourceOriginService  RelatedResourceOrigin = "service"
	RelatedResourceOriginPlatform RelatedResourceOrigin = "platform"
)

// RelatedResource is an object that is synced together with an object of the published resource.
type RelatedResource struct {
	// identifier is a name that is unique within the PublishedResource. By default, it is derived from the kind and
	// the position in the list.
	// +optional
	// +kubebuilder:validation:MaxLength=60
	Identifier string `json:"identifier,omitempty"`

	// origin is the side with the original: service for the service cluster, platform for the workspace.
	// +required
	Origin RelatedResourceOrigin `json:"origin"`

	// kind is ConfigMap or Secret.
	// +required
	// +kubebuilder:validation:Enum=ConfigMap;Secret
	Kind string `json:"kind"`

	// reference defines where the primary object has the name of the related object.
	// +required
	Reference RelatedResourceReference `json:"reference"`
}

// RelatedResourceReference defines where the primary object has the name and the namespace of a related object, on
// each side.
type RelatedResourceReference struct {
	// name is the field of the primary object with the name.
	// +required
	Name ResourceLocator `json:"name"`

	// namespace is the field of the primary object with the namespace. If unset, it is the namespace of the primary
	// object.
	// +optional
	Namespace *ResourceLocator `json:"namespace,omitempty"`
}

// ResourceLocator identifies a field of an object.
type ResourceLocator struct {
	// path is the path of the field, with dots between its parts, such as spec.secretName.
	// +required
	Path string `json:"path"`

	// regex changes the value of the field. If unset, the value is used as it is.
	// +optional
	Regex *syncagentv1alpha1.RegularExpression `json:"regex,omitempty"`
}
