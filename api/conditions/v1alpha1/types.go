package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Severity says how much a condition that is False matters. It is empty for any other status.
type Severity string

// Severities, from the one that somebody must act on to the one that is merely told.
const (
	SeverityError   Severity = "Error"
	SeverityWarning Severity = "Warning"
	SeverityInfo    Severity = "Info"
	SeverityNone    Severity = ""
)

// Type names a condition, in CamelCase.
type Type string

// Ready summarises all other conditions of an object and stands first in the list.
const Ready Type = "Ready"

// Condition tells one observed fact about an object.
type Condition struct {
	// type of the condition, in CamelCase.
	// +required
	Type Type `json:"type"`

	// status of the condition: True, False or Unknown.
	// +required
	Status corev1.ConditionStatus `json:"status"`

	// severity says how much a status of False matters. It is empty for any other status.
	// +optional
	Severity Severity `json:"severity,omitempty"`

	// lastTransitionTime is when status, severity, reason or message last changed, in whole seconds.
	// +required
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`

	// reason is one word in CamelCase for the status, for machines. It is empty when the status is True.
	// +optional
	Reason string `json:"reason,omitempty"`

	// message tells people what is the matter. It is empty when the status is True.
	// +optional
	Message string `json:"message,omitempty"`
}

// Conditions is a list of conditions with at most one of each type, sorted by type, Ready first.
type Conditions []Condition

// Getter is an object that has conditions.
//
// +kubebuilder:object:generate=false
// +k8s:openapi-gen=false
type Getter interface {
	GetConditions() Conditions
}

// Setter is an object whose conditions can be replaced.
//
// +kubebuilder:object:generate=false
// +k8s:openapi-gen=false
type Setter interface {
	Getter
	SetConditions(Conditions)
}
