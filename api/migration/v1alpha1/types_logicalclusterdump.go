package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LogicalClusterDump asks for a part of what the storage of a shard has of a logical cluster. The answer is its status; it
// is never stored.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:storageversion
type LogicalClusterDump struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which part.
	// +optional
	Spec LogicalClusterDumpSpec `json:"spec,omitempty"`

	// status is the answer.
	// +optional
	Status LogicalClusterDumpStatus `json:"status,omitempty"`
}

// LogicalClusterDumpSpec says which part is asked for.
type LogicalClusterDumpSpec struct {
	// continue is that of the answer before; empty in the beginning.
	// +optional
	Continue string `json:"continue,omitempty"`

	// limit is the largest number of entries that are wanted.
	// +optional
	Limit int64 `json:"limit,omitempty"`

	// maxBytes is the largest size of all values that is wanted, in bytes.
	// +optional
	MaxBytes int64 `json:"maxBytes,omitempty"`
}

// LogicalClusterDumpStatus is one part of the content.
type LogicalClusterDumpStatus struct {
	// entries are keys and values as they are stored.
	// +optional
	Entries []LogicalClusterDumpEntry `json:"entries,omitempty"`

	// continue says where the next part begins. Empty, nothing is left.
	// +optional
	Continue string `json:"continue,omitempty"`
}

// LogicalClusterDumpEntry is one stored object.
type LogicalClusterDumpEntry struct {
	// key is where it is stored, below the prefix of the shard.
	// +required
	Key string `json:"key"`

	// value is what is stored.
	// +required
	Value []byte `json:"value"`
}

// LogicalClusterDumpList is a list of LogicalClusterDumps.
//
// +kubebuilder:object:root=true
type LogicalClusterDumpList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []LogicalClusterDump `json:"items"`
}
