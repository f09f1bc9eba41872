package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// Shard stands for one shard of the installation. Each registers its own in the root workspace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Region",type=string,JSONPath=`.metadata.labels['region']`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.baseURL`
// +kubebuilder:printcolumn:name="External URL",type=string,JSONPath=`.spec.externalURL`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Logical Clusters",type=string,JSONPath=`.status.load.logicalclusters`
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type Shard struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is where the shard can be reached.
	// +optional
	Spec ShardSpec `json:"spec,omitempty"`

	// status is what was observed of the shard.
	// +optional
	Status ShardStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the status.
func (in *Shard) GetConditions() conditionsv1alpha1.Conditions { return in.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (in *Shard) SetConditions(conditions conditionsv1alpha1.Conditions) {
	in.Status.Conditions = conditions
}

var _ conditionsv1alpha1.Setter = &Shard{}

// ShardSpec says where a shard can be reached. All URLs are absolute.
type ShardSpec struct {
	// baseURL is where the other parts of the installation reach the shard.
	// +required
	// +kubebuilder:validation:Format=uri
	// +kubebuilder:validation:MinLength=1
	BaseURL string `json:"baseURL"`

	// externalURL is where users reach the logical clusters of the shard. It defaults to baseURL.
	// +optional
	// +kubebuilder:validation:Format=uri
	// +kubebuilder:validation:MinLength=1
	ExternalURL string `json:"externalURL,omitempty"`

	// virtualWorkspaceURL is where the virtual workspaces of the shard are served. It defaults to baseURL.
	// +optional
	// +kubebuilder:validation:Format=uri
	// +kubebuilder:validation:MinLength=1
	VirtualWorkspaceURL string `json:"virtualWorkspaceURL,omitempty"`
}

// ShardStatus is what was observed of a shard.
type ShardStatus struct {
	// capacity is how much the shard can hold: "logicalclusters", "objects" and "memory" (bytes), as far as there is a bound.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`

	// load is how much of the same the shard holds, to two digits, so that it changes when it matters.
	// +optional
	Load corev1.ResourceList `json:"load,omitempty"`

	// conditions tell single facts.
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
