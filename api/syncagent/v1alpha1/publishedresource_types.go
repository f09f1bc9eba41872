package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PublishedResource publishes one resource of the service cluster into workspaces: the agent keeps its schema in an
// APIExport, and syncs the objects that consumers create.
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
	Status PublishedResourceStatus `json:"status,omitzero"`
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

	// filter restricts which objects of workspaces are synced. By default, all are. Objects that do not match are ignored.
	// +optional
	Filter *ResourceFilter `json:"filter,omitempty"`

	// naming decides about name and namespace of the copy on the service cluster, once, when the copy is created.
	// +optional
	Naming *ResourceNaming `json:"naming,omitempty"`

	// enableWorkspacePaths looks up the path of the workspace of each object, for templates and for an annotation of the
	// copy. It adds a permission claim for logicalclusters.
	// +optional
	EnableWorkspacePaths bool `json:"enableWorkspacePaths,omitempty"`

	// projection changes how the resource is named in workspaces. The schema itself is never changed.
	// +optional
	Projection *ResourceProjection `json:"projection,omitempty"`

	// mutation changes the content of objects on the way.
	// +optional
	Mutation *ResourceMutationSpec `json:"mutation,omitempty"`

	// related are other objects that belong to an object, such as the Secret with its credentials.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Related []RelatedResourceSpec `json:"related,omitempty"`

	// synchronization can switch the syncing of objects off. The schema is published nevertheless.
	// +optional
	Synchronization *SynchronizationSpec `json:"synchronization,omitempty"`
}

// SourceResource is a resource of the service cluster.
type SourceResource struct {
	// apiGroup is the API group; empty for the core group.
	// +required
	// +kubebuilder:validation:MaxLength=253
	APIGroup string `json:"apiGroup"`

	// kind is the kind.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// version is the one version to publish. Deprecated: use versions.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`

	// versions are the versions to publish; by default, all that are served.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=63
	Versions []string `json:"versions,omitempty"`
}

// ResourceFilter selects objects.
type ResourceFilter struct {
	// namespace is matched against the labels of the object's namespace in the workspace.
	// +optional
	Namespace *metav1.LabelSelector `json:"namespace,omitempty"`

	// resource is matched against the labels of the object.
	// +optional
	Resource *metav1.LabelSelector `json:"resource,omitempty"`
}

// ResourceNaming are Go templates, or texts with the older placeholders such as $remoteName.
type ResourceNaming struct {
	// name is the name of the copy. By default, it is made of hashes of namespace and name.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Name string `json:"name,omitempty"`

	// namespace is the namespace of the copy. By default, it is the name of the logical cluster. It is ignored for
	// cluster-scoped copies.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Namespace string `json:"namespace,omitempty"`
}

// ResourceScope is the scope of a resource.
// +kubebuilder:validation:Enum=Cluster;Namespaced
type ResourceScope string

// The scopes.
const (
	ClusterScoped   ResourceScope = "Cluster"
	NamespaceScoped ResourceScope = "Namespaced"
)

// ResourceProjection changes names of the resource; what is not set stays as on the service cluster.
type ResourceProjection struct {
	// group is the API group in workspaces.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`

	// version is the name of the version, if one version is published. Deprecated: use versions.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`

	// versions maps names of versions on the service cluster to those in workspaces.
	// +optional
	Versions map[string]string `json:"versions,omitempty"`

	// scope is the scope in workspaces.
	// +optional
	Scope ResourceScope `json:"scope,omitempty"`

	// kind is the kind in workspaces.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`

	// plural is the name of the resource in workspaces. By default, it follows the kind.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Plural string `json:"plural,omitempty"`

	// shortNames replaces the short names, also by an empty list.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=63
	ShortNames *[]string `json:"shortNames,omitempty"`

	// categories replaces the categories, also by an empty list.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=63
	Categories *[]string `json:"categories,omitempty"`
}

// SynchronizationSpec switches syncing.
type SynchronizationSpec struct {
	// enabled says whether objects are synced.
	// +required
	Enabled bool `json:"enabled"`
}

// The conditions of a PublishedResource.
const (
	// ConditionSchemaReady says whether there is an APIResourceSchema of the current content.
	ConditionSchemaReady = "SchemaReady"
	// ConditionExported says whether the APIExport has that schema, and the permission claims.
	ConditionExported = "Exported"
	// ConditionSyncing says whether objects are synced.
	ConditionSyncing = "Syncing"
	// ConditionReady sums up the others.
	ConditionReady = "Ready"
)

// PublishedResourceStatus is the observed state of a PublishedResource.
type PublishedResourceStatus struct {
	// resourceSchemaName is the name of the APIResourceSchema that has been created for the resource.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ResourceSchemaName string `json:"resourceSchemaName,omitempty"`

	// conditions are SchemaReady, Exported, Syncing and Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
