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

	// spec defines what is published, and how objects are synced.
	// +required
	Spec PublishedResourceSpec `json:"spec"`

	// status is the observed state of the publication.
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
	// resource identifies the published resource of the service cluster.
	// +required
	Resource SourceResource `json:"resource"`

	// filter selects the objects of workspaces that are synced. If unset, all are synced.
	// +optional
	Filter *ResourceFilter `json:"filter,omitempty"`

	// naming defines the name and the namespace of copies on the service cluster. A change does not rename existing
	// copies.
	// +optional
	Naming *ResourceNaming `json:"naming,omitempty"`

	// enableWorkspacePaths makes the path of the workspace available to templates as .ClusterPath, and adds it as an
	// annotation to copies. It adds a permission claim for logicalclusters. Defaults to false.
	// +optional
	EnableWorkspacePaths bool `json:"enableWorkspacePaths,omitempty"`

	// projection changes the names of the resource in workspaces. It does not change the schemas of its versions.
	// +optional
	Projection *ResourceProjection `json:"projection,omitempty"`

	// mutation changes the content of objects while they are copied. If unset, copies have the content of the
	// original.
	// +optional
	Mutation *ResourceMutationSpec `json:"mutation,omitempty"`

	// related are further objects that are synced together with an object, such as the Secret with its credentials.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Related []RelatedResourceSpec `json:"related,omitempty"`

	// synchronization can disable the syncing of objects. If unset, objects are synced.
	// +optional
	Synchronization *SynchronizationSpec `json:"synchronization,omitempty"`
}

// SourceResource identifies a resource of the service cluster.
type SourceResource struct {
	// apiGroup is the API group of the resource. Empty for the core group.
	// +required
	// +kubebuilder:validation:MaxLength=253
	APIGroup string `json:"apiGroup"`

	// kind is the kind of the resource.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// version is the only published version. Deprecated: use versions.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`

	// versions are the published versions. If empty, all served versions are published.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=63
	Versions []string `json:"versions,omitempty"`
}

// ResourceFilter selects objects. If both fields are set, an object must match both. The agent ignores objects that
// do not match.
type ResourceFilter struct {
	// namespace is a label selector for the namespaces of the objects in workspaces. If unset, objects in all
	// namespaces match.
	// +optional
	Namespace *metav1.LabelSelector `json:"namespace,omitempty"`

	// resource is a label selector for the objects. If unset, all match.
	// +optional
	Resource *metav1.LabelSelector `json:"resource,omitempty"`
}

// ResourceNaming has Go templates for the name and the namespace of copies. Texts with the older placeholders, such
// as $remoteName, are accepted, too.
type ResourceNaming struct {
	// name is the name of the copy. By default, it consists of hashes of the namespace and of the name of the object,
	// so that names do not collide.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Name string `json:"name,omitempty"`

	// namespace is the namespace of the copy. Defaults to the name of the logical cluster. Ignored for cluster-scoped
	// copies.
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

// ResourceProjection changes names of the resource in workspaces. Fields that are unset keep the values of the
// service cluster.
type ResourceProjection struct {
	// group is the API group in workspaces. Required for resources of the core group, and not a group of Kubernetes.
	// Defaults to the API group of the resource.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`

	// version is the name of the version in workspaces, if only one version is published. Deprecated: use versions.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`

	// versions maps names of versions on the service cluster to their names in workspaces. Versions that are not
	// listed keep their names.
	// +optional
	Versions map[string]string `json:"versions,omitempty"`

	// scope is the scope of the resource in workspaces: Cluster or Namespaced.
	// +optional
	Scope ResourceScope `json:"scope,omitempty"`

	// kind is the kind in workspaces.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`

	// plural is the plural name of the resource in workspaces. By default, it is derived from the kind.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Plural string `json:"plural,omitempty"`

	// shortNames replace the short names. An empty list removes them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=63
	ShortNames *[]string `json:"shortNames,omitempty"`

	// categories replace the categories. An empty list removes them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=63
	Categories *[]string `json:"categories,omitempty"`
}

// SynchronizationSpec enables or disables the syncing of objects.
type SynchronizationSpec struct {
	// enabled specifies whether objects are synced. If false, only the schema is published.
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
	// resourceSchemaName is the name of the APIResourceSchema of the published resource. Empty until it is created.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ResourceSchemaName string `json:"resourceSchemaName,omitempty"`

	// conditions describe the state of the publication: SchemaReady, Exported, Syncing, and Ready, which summarizes
	// the others.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
