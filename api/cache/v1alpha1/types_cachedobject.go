package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// CachedObject wraps an object of any kind. It is served by cache servers only, not by shards. Copies in the cache are
// not wrapped, but stored under their own kinds.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type CachedObject struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec contains the wrapped object.
	// +required
	Spec CachedObjectSpec `json:"spec"`
}

// CachedObjectSpec contains the wrapped object.
type CachedObjectSpec struct {
	// raw is the wrapped object.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	Raw runtime.RawExtension `json:"raw"`
}

// CachedObjectList is a list of CachedObjects.
//
// +kubebuilder:object:root=true
type CachedObjectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []CachedObject `json:"items"`
}
