package v1alpha1

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// LogicalCluster represents the logical cluster that contains it. It is a singleton named "cluster". A logical cluster
// exists if and only if its LogicalCluster exists.
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

	// spec is the desired state of the logical cluster.
	// +optional
	// +kubebuilder:default={}
	Spec LogicalClusterSpec `json:"spec,omitempty"`

	// status is the observed state of the logical cluster.
	// +optional
	// +kubebuilder:default={}
	Status LogicalClusterStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the status.
func (l *LogicalCluster) GetConditions() conditionsv1alpha1.Conditions { return l.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (l *LogicalCluster) SetConditions(conditions conditionsv1alpha1.Conditions) {
	l.Status.Conditions = conditions
}

var _ conditionsv1alpha1.Setter = &LogicalCluster{}

// LogicalClusterSpec describes the desired state of a LogicalCluster.
type LogicalClusterSpec struct {
	// directlyDeletable specifies whether users can delete the LogicalCluster directly instead of deleting its owner.
	// Defaults to false.
	// +optional
	// +kubebuilder:default=false
	DirectlyDeletable bool `json:"directlyDeletable"`

	// owner is a reference to the object that owns this logical cluster, usually a Workspace in the parent logical
	// cluster.
	// +optional
	Owner *LogicalClusterOwner `json:"owner,omitempty"`

	// createdBy is the user that created the logical cluster. This user is an administrator of the logical cluster.
	// +optional
	CreatedBy *authenticationv1.UserInfo `json:"createdBy,omitempty"`

	// initializers are the names of the controllers that must initialize the logical cluster before it becomes ready.
	// They are copied to status.initializers when initialization starts.
	// +optional
	Initializers []LogicalClusterInitializer `json:"initializers,omitempty"`

	// terminators are the names of the controllers that must clean up a logical cluster before its deletion completes.
	// They are copied to status.terminators when initialization starts.
	// +optional
	Terminators []LogicalClusterTerminator `json:"terminators,omitempty"`
}

// LogicalClusterInitializer is the name of a controller that initializes logical clusters. The format is "<cluster
// name>:<name of the workspace type>", or "system:<name>" for initializers of the server.
//
// +kubebuilder:validation:Pattern:="^([a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(:[a-z0-9][a-z0-9]([-a-z0-9]*[a-z0-9])?))|(system:.+)$"
type LogicalClusterInitializer string

// LogicalClusterTerminator is the name of a controller that cleans up logical clusters that are being deleted. The
// format is the same as for initializers.
//
// +kubebuilder:validation:Pattern:="^([a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(:[a-z0-9][a-z0-9]([-a-z0-9]*[a-z0-9])?))|(system:.+)$"
type LogicalClusterTerminator string

// LogicalClusterOwner is a reference to the object that owns a logical cluster.
type LogicalClusterOwner struct {
	// apiVersion is the group and version of the owner.
	// +required
	// +kubebuilder:validation:Pattern:="^([^/]+/)?[^/]+$"
	APIVersion string `json:"apiVersion"`

	// resource is the plural name of the owner's resource.
	// +required
	// +kubebuilder:validation:MinLength=1
	Resource string `json:"resource"`

	// name is the name of the owner.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// namespace is the namespace of the owner. Empty for cluster-scoped owners.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// cluster is the name of the logical cluster that contains the owner. Must not be a workspace path.
	// +required
	// +kubebuilder:validation:MinLength=1
	Cluster string `json:"cluster"`

	// uid is the UID of the owner.
	// +required
	UID types.UID `json:"uid"`
}

// LogicalClusterPhaseType is the phase of a logical cluster or of a workspace.
//
// +kubebuilder:validation:Enum=Scheduling;Initializing;Ready;Unavailable;Inactive;Terminating;Deleting
type LogicalClusterPhaseType string

// Phases of logical clusters and of workspaces.
const (
	// LogicalClusterPhaseScheduling means that the logical cluster has not been scheduled to a shard, or that
	// scheduling is in progress.
	LogicalClusterPhaseScheduling LogicalClusterPhaseType = "Scheduling"
	// LogicalClusterPhaseInitializing means that the logical cluster is being initialized by its initializers.
	LogicalClusterPhaseInitializing LogicalClusterPhaseType = "Initializing"
	// LogicalClusterPhaseReady means that the logical cluster is ready for use.
	LogicalClusterPhaseReady LogicalClusterPhaseType = "Ready"
	// LogicalClusterPhaseUnavailable means that a dependency of the logical cluster or workspace is missing.
	LogicalClusterPhaseUnavailable LogicalClusterPhaseType = "Unavailable"
	// LogicalClusterPhaseInactive means that the logical cluster has been disabled by annotation.
	LogicalClusterPhaseInactive LogicalClusterPhaseType = "Inactive"
	// LogicalClusterPhaseTerminating means that the logical cluster is being deleted and terminators remain.
	LogicalClusterPhaseTerminating LogicalClusterPhaseType = "Terminating"
	// LogicalClusterPhaseDeleting means that the logical cluster is being deleted and no terminators remain.
	LogicalClusterPhaseDeleting LogicalClusterPhaseType = "Deleting"
)

// LogicalClusterStatus describes the observed state of a LogicalCluster.
type LogicalClusterStatus struct {
	// URL is the address of the logical cluster.
	// +optional
	URL string `json:"URL,omitempty"`

	// phase is the current phase of the logical cluster. Defaults to Scheduling.
	// +optional
	// +kubebuilder:default=Scheduling
	Phase LogicalClusterPhaseType `json:"phase,omitempty"`

	// conditions are the current conditions of the logical cluster.
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`

	// initializers are the initializers of the spec that have not completed.
	// +optional
	Initializers []LogicalClusterInitializer `json:"initializers,omitempty"`

	// terminators are the terminators of the spec that have not completed.
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
