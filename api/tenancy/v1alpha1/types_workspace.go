package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// Workspace is a child in the tree of workspaces: it leads to a logical cluster on some shard, or to something else
// that is mounted in its place.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp,shortName=ws
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type.name`
// +kubebuilder:printcolumn:name="Region",type=string,JSONPath=`.metadata.labels['region']`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.URL`
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type Workspace struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the workspace should be and where it leads.
	// +required
	// +kubebuilder:default={}
	Spec WorkspaceSpec `json:"spec"`

	// status is how far it has come.
	// +optional
	// +kubebuilder:default={}
	Status WorkspaceStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the status.
func (in *Workspace) GetConditions() conditionsv1alpha1.Conditions { return in.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (in *Workspace) SetConditions(conditions conditionsv1alpha1.Conditions) {
	in.Status.Conditions = conditions
}

var _ conditionsv1alpha1.Setter = &Workspace{}

// WorkspaceSpec says what a workspace should be and where it leads.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.URL) || has(self.URL)",message="URL cannot be unset"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.cluster) || has(self.cluster)",message="cluster cannot be unset"
type WorkspaceSpec struct {
	// type says which WorkspaceType prepares the workspace. It is chosen by the parent if left out, and immutable.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.name == oldSelf.name",message="name is immutable"
	// +kubebuilder:validation:XValidation:rule="has(oldSelf.path) == has(self.path)",message="path cannot be set or unset"
	// +kubebuilder:validation:XValidation:rule="!has(oldSelf.path) || !has(self.path) || self.path == oldSelf.path",message="path is immutable"
	Type *WorkspaceTypeReference `json:"type,omitempty"`

	// location narrows down the shards that may hold the workspace.
	// +optional
	Location *WorkspaceLocation `json:"location,omitempty"`

	// cluster is the name of the logical cluster that the workspace leads to. Set by the system.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cluster is immutable"
	Cluster string `json:"cluster,omitempty"`

	// URL is where the workspace can be reached. Set by the system.
	// +optional
	URL string `json:"URL,omitempty"`

	// mount puts something else in the place of a logical cluster.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(oldSelf.ref.__namespace__) == has(self.ref.__namespace__) && (!has(self.ref.__namespace__) || self.ref.__namespace__ == oldSelf.ref.__namespace__)",message="namespace of ref is immutable"
	Mount *Mount `json:"mount,omitempty"`
}

// Mount refers to the object that stands for what is mounted.
type Mount struct {
	// ref is an object in the workspace's own logical cluster, whose status holds a phase and a URL. It is immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self.apiVersion == oldSelf.apiVersion",message="apiVersion is immutable"
	// +kubebuilder:validation:XValidation:rule="self.kind == oldSelf.kind",message="kind is immutable"
	// +kubebuilder:validation:XValidation:rule="self.name == oldSelf.name",message="name is immutable"
	Reference ObjectReference `json:"ref"`
}

// ObjectReference names an object in the same logical cluster.
type ObjectReference struct {
	// apiVersion is the group and version of the object.
	// +required
	APIVersion string `json:"apiVersion"`

	// kind of the object.
	// +required
	Kind string `json:"kind"`

	// name of the object.
	// +required
	Name string `json:"name"`

	// namespace of the object, empty where it has none.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// WorkspaceLocation narrows down the shards that may hold a workspace.
type WorkspaceLocation struct {
	// selector is matched against the labels of Shards. Without one, every shard may hold the workspace.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// WorkspaceTypeReference names a WorkspaceType.
type WorkspaceTypeReference struct {
	// name of the type.
	// +required
	Name WorkspaceTypeName `json:"name"`

	// path, or cluster name, of the workspace that holds the type. Left out on creation of a workspace: the type is
	// looked for in the parent and its ancestors.
	// +optional
	// +kubebuilder:validation:Pattern:="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
	Path string `json:"path,omitempty"`
}

// String returns "<path>:<name>", or the name alone where there is no path.
func (r WorkspaceTypeReference) String() string {
	if r.Path == "" {
		return string(r.Name)
	}
	return r.Path + ":" + string(r.Name)
}

// WorkspaceTypeName is the name of a WorkspaceType.
//
// +kubebuilder:validation:Pattern:="^[a-z]([a-z0-9-]{0,61}[a-z0-9])?"
type WorkspaceTypeName string

// WorkspaceStatus tells how far a workspace has come.
type WorkspaceStatus struct {
	// phase sums up how far it has come.
	// +optional
	// +kubebuilder:default=Scheduling
	Phase corev1alpha1.LogicalClusterPhaseType `json:"phase,omitempty"`

	// conditions tell single facts.
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`

	// initializers are those of the logical cluster that have not finished.
	// +optional
	Initializers []corev1alpha1.LogicalClusterInitializer `json:"initializers,omitempty"`

	// terminators are those of the logical cluster that have not finished.
	// +optional
	Terminators []corev1alpha1.LogicalClusterTerminator `json:"terminators,omitempty"`
}

// WorkspaceList is a list of Workspaces.
//
// +kubebuilder:object:root=true
type WorkspaceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Workspace `json:"items"`
}
