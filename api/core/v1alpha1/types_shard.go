package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// Shard represents a shard of the installation. Each shard registers its own object in the root workspace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Region",type=string,JSONPath=`.metadata.labels['region']`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.baseURL`
// +kubebuilder:printcolumn:name="External URL",type=string,JSONPath=`.spec.externalURL`
// +kubebuilder:printcolumn:name="Schedulable",type=string,JSONPath=`.status.conditions[?(@.type=="Schedulable")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Logical Clusters",type=string,JSONPath=`.status.load.logicalclusters`
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type Shard struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the shard.
	// +optional
	Spec ShardSpec `json:"spec,omitempty"`

	// status is the observed state of the shard.
	// +optional
	Status ShardStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the status.
func (s *Shard) GetConditions() conditionsv1alpha1.Conditions { return s.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (s *Shard) SetConditions(conditions conditionsv1alpha1.Conditions) {
	s.Status.Conditions = conditions
}

var _ conditionsv1alpha1.Setter = &Shard{}

// ShardSpec describes the desired state of a Shard. All URLs must be absolute.
type ShardSpec struct {
	// baseURL is the URL at which other components of the installation access the shard.
	// +required
	// +kubebuilder:validation:Format=uri
	// +kubebuilder:validation:MinLength=1
	BaseURL string `json:"baseURL"`

	// externalURL is the URL at which users access the logical clusters of the shard. Defaults to baseURL.
	// +optional
	// +kubebuilder:validation:Format=uri
	// +kubebuilder:validation:MinLength=1
	ExternalURL string `json:"externalURL,omitempty"`

	// virtualWorkspaceURL is the URL of the virtual workspaces of the shard. Defaults to baseURL.
	// +optional
	// +kubebuilder:validation:Format=uri
	// +kubebuilder:validation:MinLength=1
	VirtualWorkspaceURL string `json:"virtualWorkspaceURL,omitempty"`

	// resourceLimits limits how many logical clusters are placed on the shard. If unset, there is no limit.
	// +optional
	ResourceLimits *ShardResourceLimits `json:"resourceLimits,omitempty"`
}

// ShardResourceLimits has the limits of a shard, by resource. Only "workspaces" has an effect: the number of logical
// clusters on the shard, as in status.used. A limit that is unset, 0 or negative does not apply.
type ShardResourceLimits struct {
	// soft has limits at which new workspaces are placed on other shards if possible.
	// +optional
	Soft corev1.ResourceList `json:"soft,omitempty"`

	// hard has limits at which no further workspaces are placed on the shard. Existing ones stay.
	// +optional
	Hard corev1.ResourceList `json:"hard,omitempty"`
}

// ShardStatus describes the observed state of a Shard.
type ShardStatus struct {
	// capacity is the capacity of the shard for the resources "logicalclusters", "objects" and "memory" (in bytes).
	// Resources without a limit are omitted.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`

	// load is the current usage of these resources. Quantities other than logicalclusters are rounded down to two significant
	// digits.
	// +optional
	Load corev1.ResourceList `json:"load,omitempty"`

	// used is the usage to which resourceLimits apply: "workspaces" is the number of all logical clusters on the
	// shard, including those of the system and those that are being deleted.
	// +optional
	Used corev1.ResourceList `json:"used,omitempty"`

	// conditions are the current conditions of the shard.
	// +optional
	Conditions conditionsv1alpha1.Conditions `json:"conditions,omitempty"`
}

// ShardList is a list of Shards.
//
// +kubebuilder:object:root=true
type ShardList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Shard `json:"items"`
}
