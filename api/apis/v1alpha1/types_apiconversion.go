package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// APIConversion defines how objects of the APIResourceSchema of the same name are converted between versions. It is stored
// but not evaluated.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type APIConversion struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// spec holds the conversions.
	// +required
	Spec APIConversionSpec `json:"spec"`
}

// APIConversionSpec holds conversions.
type APIConversionSpec struct {
	// conversions are between two versions each.
	// +required
	// +listType=map
	// +listMapKey=from
	// +listMapKey=to
	Conversions []APIVersionConversion `json:"conversions"`
}

// APIVersionConversion defines how objects of one version are converted to another.
type APIVersionConversion struct {
	// from is the version to convert from.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$`
	From string `json:"from"`

	// to is the version to convert to.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$`
	To string `json:"to"`

	// rules set one field each.
	// +required
	// +listType=map
	// +listMapKey=destination
	Rules []APIConversionRule `json:"rules"`

	// preserve are the paths of fields that the other version does not have and that a round trip must restore.
	// +optional
	Preserve []string `json:"preserve,omitempty"`
}

// APIConversionRule sets one field.
type APIConversionRule struct {
	// field is the path that the value comes from.
	// +required
	// +kubebuilder:validation:MinLength=1
	Field string `json:"field"`

	// destination is the path that the value goes to.
	// +required
	// +kubebuilder:validation:MinLength=1
	Destination string `json:"destination"`

	// transformation is a CEL expression that computes the value from that of field. If unset, the value is copied.
	// +optional
	Transformation string `json:"transformation,omitempty"`
}

// APIConversionList is a list of APIConversions.
//
// +kubebuilder:object:root=true
type APIConversionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []APIConversion `json:"items"`
}
