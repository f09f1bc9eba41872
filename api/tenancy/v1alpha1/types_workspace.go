package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// Workspace is a node in the tree of workspaces. It is backed by a logical cluster on a shard, or by a mounted object.
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

	// spec is the desired state of the workspace.
	// +required
	// +kubebuilder:default={}
	Spec WorkspaceSpec `json:"spec"`

	// status is the observed state of the workspace.
	// +optional
	// +kubebuilder:default={}
	Status WorkspaceStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the status.
func (w *Workspace) GetConditions() conditionsv1alpha1.Conditions { return w.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (w *Workspace) SetConditions(conditions conditionsv1alpha1.Conditions) {
	w.Status.Conditions = conditions
}

var _ conditionsv1alpha1.Setter = &Workspace{}

// WorkspaceSpec describes the desired state of a Workspace.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.URL) || has(self.URL)",message="URL cannot be unset"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.cluster) || has(self.cluster)",message="cluster cannot be unset"
type WorkspaceSpec struct {
	// type is a reference to the WorkspaceType of the workspace. Defaults to the default child type of the parent
	// workspace. Immutable.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.name == oldSelf.name",message="name is immutable"
	// +kubebuilder:validation:XValidation:rule="has(oldSelf.path) == has(self.path)",message="path cannot be set or unset"
	// +kubebuilder:validation:XValidation:rule="!has(oldSelf.path) || !has(self.path) || self.path == oldSelf.path",message="path is immutable"
	Type *WorkspaceTypeReference `json:"type,omitempty"`

	// location constrains the shards to which the workspace can be scheduled.
	// +optional
	Location *WorkspaceLocation `json:"location,omitempty"`

	// cluster is the name of the logical cluster of the workspace. Set by the system. Immutable once set.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cluster is immutable"
	Cluster string `json:"cluster,omitempty"`

	// URL is the address of the workspace. Set by the system. Cannot be unset.
	// +optional
	URL string `json:"URL,omitempty"`

	// mount mounts an endpoint that is described by another object, instead of a logical cluster.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(oldSelf.ref.__namespace__) == has(self.ref.__namespace__) && (!has(self.ref.__namespace__) || self.ref.__namespace__ == oldSelf.ref.__namespace__)",message="namespace of ref is immutable"
	Mount *Mount `json:"mount,omitempty"`
}

// Mount is a reference to the object that represents the mounted endpoint.
type Mount struct {
	// ref is a reference to an object in the same logical cluster as the workspace. The object must provide
	// status.phase and status.URL. Immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self.apiVersion == oldSelf.apiVersion",message="apiVersion is immutable"
	// +kubebuilder:validation:XValidation:rule="self.kind == oldSelf.kind",message="kind is immutable"
	// +kubebuilder:validation:XValidation:rule="self.name == oldSelf.name",message="name is immutable"
	Reference ObjectReference `json:"ref"`
}

// ObjectReference is a reference to an object in the same logical cluster.
type ObjectReference struct {
	// apiVersion is the group and version of the object.
	// +required
	APIVersion string `json:"apiVersion"`

	// kind is the kind of the object.
	// +required
	Kind string `json:"kind"`

	// name is the name of the object.
	// +required
	Name string `json:"name"`

	// namespace is the namespace of the object. Empty for cluster-scoped objects.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// WorkspaceLocation constrains the shards to which a workspace can be scheduled.
type WorkspaceLocation struct {
	// selector is a label selector for Shards. If unset, the workspace can be scheduled to any shard.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// WorkspaceTypeReference is a reference to a WorkspaceType.
type WorkspaceTypeReference struct {
	// name is the name of the WorkspaceType.
	// +required
	Name WorkspaceTypeName `json:"name"`

	// path is the path or cluster name of the workspace that contains the WorkspaceType. If unset when a workspace is
	// created, the type is looked up in the parent workspace and its ancestors.
	// +optional
	// +kubebuilder:validation:Pattern:="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
	Path string `json:"path,omitempty"`
}

// String returns "<path>:<name>", or only the name if the path is empty.
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

// WorkspaceStatus describes the observed state of a Workspace.
type WorkspaceStatus struct {
	// phase is the current phase of the workspace. Defaults to Scheduling.
	// +optional
	// +kubebuilder:default=Scheduling
	Phase corev1alpha1.LogicalClusterPhaseType `json:"phase,omitempty"`

	// conditions are the current conditions of the workspace.
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`

	// initializers are the initializers of the logical cluster that have not completed.
	// +optional
	Initializers []corev1alpha1.LogicalClusterInitializer `json:"initializers,omitempty"`

	// terminators are the terminators of the logical cluster that have not completed.
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
