package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LogicalClusterDump requests a chunk of the stored content of a logical cluster on a shard. The chunk is returned in
// the status. The object is not persisted.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:storageversion
type LogicalClusterDump struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes the requested chunk.
	// +optional
	Spec LogicalClusterDumpSpec `json:"spec,omitempty"`

	// status contains the returned chunk.
	// +optional
	Status LogicalClusterDumpStatus `json:"status,omitempty"`
}

// LogicalClusterDumpSpec describes the requested chunk.
type LogicalClusterDumpSpec struct {
	// continue is the continue token of the previous response. Empty for the first chunk.
	// +optional
	Continue string `json:"continue,omitempty"`

	// limit is the maximum number of entries to return.
	// +optional
	Limit int64 `json:"limit,omitempty"`

	// maxBytes is the maximum total size of the returned values, in bytes.
	// +optional
	MaxBytes int64 `json:"maxBytes,omitempty"`
}

// LogicalClusterDumpStatus contains a chunk of the content of a logical cluster.
type LogicalClusterDumpStatus struct {
	// entries are the key-value pairs, as stored.
	// +optional
	Entries []LogicalClusterDumpEntry `json:"entries,omitempty"`

	// continue is the token for requesting the next chunk. Empty if there are no more entries.
	// +optional
	Continue string `json:"continue,omitempty"`
}

// LogicalClusterDumpEntry is a single stored object.
type LogicalClusterDumpEntry struct {
	// key is the storage key of the object, relative to the prefix of the shard.
	// +required
	Key string `json:"key"`

	// value is the stored value of the object.
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
