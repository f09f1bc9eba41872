package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// APIConversion defines how objects of the APIResourceSchema of the same name are converted between versions. It is
// stored but not evaluated.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type APIConversion struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// spec describes the conversions between versions.
	// +required
	Spec APIConversionSpec `json:"spec"`
}

// APIConversionSpec describes the conversions between versions of a resource.
type APIConversionSpec struct {
	// conversions is the list of conversions, each from one version to another.
	// +required
	// +listType=map
	// +listMapKey=from
	// +listMapKey=to
	Conversions []APIVersionConversion `json:"conversions"`
}

// APIVersionConversion describes the conversion of objects from one version to another.
type APIVersionConversion struct {
	// from is the source version.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$`
	From string `json:"from"`

	// to is the target version.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$`
	To string `json:"to"`

	// rules is the list of conversion rules. Each rule sets one field.
	// +required
	// +listType=map
	// +listMapKey=destination
	Rules []APIConversionRule `json:"rules"`

	// preserve is the list of paths of fields that do not exist in the other version and must be restored by a round
	// trip.
	// +optional
	Preserve []string `json:"preserve,omitempty"`
}

// APIConversionRule describes the conversion of one field.
type APIConversionRule struct {
	// field is the path of the source field.
	// +required
	// +kubebuilder:validation:MinLength=1
	Field string `json:"field"`

	// destination is the path of the destination field.
	// +required
	// +kubebuilder:validation:MinLength=1
	Destination string `json:"destination"`

	// transformation is a CEL expression that computes the value from the value of the source field. If unset, the
	// value is copied.
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
