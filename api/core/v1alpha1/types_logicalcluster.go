package v1alpha1

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// LogicalCluster stands for the logical cluster that contains it. A logical cluster exists if and only if it contains
// an object of this kind, named "cluster".
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.URL`
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type LogicalCluster struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the logical cluster was made for.
	// +optional
	// +kubebuilder:default={}
	Spec LogicalClusterSpec `json:"spec,omitempty"`

	// status is how far it has come.
	// +optional
	// +kubebuilder:default={}
	Status LogicalClusterStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the status.
func (in *LogicalCluster) GetConditions() conditionsv1alpha1.Conditions { return in.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (in *LogicalCluster) SetConditions(conditions conditionsv1alpha1.Conditions) {
	in.Status.Conditions = conditions
}

var _ conditionsv1alpha1.Setter = &LogicalCluster{}

// LogicalClusterSpec says what a logical cluster was made for.
type LogicalClusterSpec struct {
	// directlyDeletable lets users delete the logical cluster itself rather than its owner.
	// +optional
	// +kubebuilder:default=false
	DirectlyDeletable bool `json:"directlyDeletable"`

	// owner is the object, usually a Workspace in the parent's logical cluster, that this logical cluster belongs to.
	// +optional
	Owner *LogicalClusterOwner `json:"owner,omitempty"`

	// createdBy is who made the logical cluster. That user becomes its administrator.
	// +optional
	CreatedBy *authenticationv1.UserInfo `json:"createdBy,omitempty"`

	// initializers are the names of the controllers that must prepare the logical cluster before it is ready. They are
	// copied into the status when initialization begins.
	// +optional
	Initializers []LogicalClusterInitializer `json:"initializers,omitempty"`

	// terminators are the names of the controllers that must clean up before a logical cluster that is being deleted
	// disappears. They are copied into the status when initialization begins.
	// +optional
	Terminators []LogicalClusterTerminator `json:"terminators,omitempty"`
}

// LogicalClusterInitializer names a controller that prepares new logical clusters: "<cluster name>:<name of the
// workspace type>", or "system:<name>" for the server's own.
//
// +kubebuilder:validation:Pattern:="^([a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(:[a-z0-9][a-z0-9]([-a-z0-9]*[a-z0-9])?))|(system:.+)$"
type LogicalClusterInitializer string

// LogicalClusterTerminator names a controller that cleans up behind logical clusters; spelled like an initializer.
//
// +kubebuilder:validation:Pattern:="^([a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(:[a-z0-9][a-z0-9]([-a-z0-9]*[a-z0-9])?))|(system:.+)$"
type LogicalClusterTerminator string

// LogicalClusterOwner refers to the object that a logical cluster belongs to.
type LogicalClusterOwner struct {
	// apiVersion is the group and version of the owner.
	// +required
	// +kubebuilder:validation:Pattern:="^([^/]+/)?[^/]+$"
	APIVersion string `json:"apiVersion"`

	// resource is the plural name of the owner's resource.
	// +required
	// +kubebuilder:validation:MinLength=1
	Resource string `json:"resource"`

	// name of the owner.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// namespace of the owner, empty where it has none.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// cluster is the name, not the path, of the logical cluster that contains the owner.
	// +required
	// +kubebuilder:validation:MinLength=1
	Cluster string `json:"cluster"`

	// uid of the owner.
	// +required
	UID types.UID `json:"uid"`
}

// LogicalClusterPhaseType tells how far a logical cluster has come.
//
// +kubebuilder:validation:Enum=Scheduling;Initializing;Ready;Unavailable;Inactive;Terminating;Deleting
type LogicalClusterPhaseType string

// Phases of logical clusters and of workspaces.
const (
	// LogicalClusterPhaseScheduling: no place has been decided, or the decision is being carried out.
	LogicalClusterPhaseScheduling LogicalClusterPhaseType = "Scheduling"
	// LogicalClusterPhaseInitializing: initializers are at work.
	LogicalClusterPhaseInitializing LogicalClusterPhaseType = "Initializing"
	// LogicalClusterPhaseReady: it can be used.
	LogicalClusterPhaseReady LogicalClusterPhaseType = "Ready"
	// LogicalClusterPhaseUnavailable: something it needs is missing.
	LogicalClusterPhaseUnavailable LogicalClusterPhaseType = "Unavailable"
	// LogicalClusterPhaseInactive: it has been switched off by annotation.
	LogicalClusterPhaseInactive LogicalClusterPhaseType = "Inactive"
	// LogicalClusterPhaseTerminating: it is being deleted and terminators are at work.
	LogicalClusterPhaseTerminating LogicalClusterPhaseType = "Terminating"
	// LogicalClusterPhaseDeleting: it is being deleted and no terminator is left.
	LogicalClusterPhaseDeleting LogicalClusterPhaseType = "Deleting"
)

// LogicalClusterStatus tells how far a logical cluster has come.
type LogicalClusterStatus struct {
	// URL is where the logical cluster can be reached.
	// +optional
	URL string `json:"URL,omitempty"`

	// phase sums up how far it has come.
	// +optional
	// +kubebuilder:default=Scheduling
	Phase LogicalClusterPhaseType `json:"phase,omitempty"`

	// conditions tell single facts.
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`

	// initializers are those of the spec that have not finished.
	// +optional
	Initializers []LogicalClusterInitializer `json:"initializers,omitempty"`

	// terminators are those of the spec that have not finished.
	// +optional
	Terminators []LogicalClusterTerminator `json:"terminators,omitempty"`
}

// LogicalClusterList is a list of LogicalClusters.
//
// +kubebuilder:object:root=true
type LogicalClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []LogicalCluster `json:"items"`
}
