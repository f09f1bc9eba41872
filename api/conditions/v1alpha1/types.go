package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Severity is the severity of a condition that is False. Empty for any other status.
type Severity string

// Severities of conditions, in decreasing order: Error requires action, Info is only informational.
const (
	SeverityError   Severity = "Error"
	SeverityWarning Severity = "Warning"
	SeverityInfo    Severity = "Info"
	SeverityNone    Severity = ""
)

// Type is the type of a condition, in CamelCase.
type Type string

// Ready is the condition that summarizes all other conditions of an object. It is the first in the list.
const Ready Type = "Ready"

// Condition describes one aspect of the observed state of an object.
type Condition struct {
	// type is the type of the condition, in CamelCase.
	// +required
	Type Type `json:"type"`

	// status is the status of the condition. Must be True, False or Unknown.
	// +required
	Status corev1.ConditionStatus `json:"status"`

	// severity is the severity of a condition that is False. Empty for any other status.
	// +optional
	Severity Severity `json:"severity,omitempty"`

	// lastTransitionTime is the last time that status, severity, reason or message changed, truncated to seconds.
	// +required
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`

	// reason is a machine-readable reason for the status, in one CamelCase word. Empty if the status is True.
	// +optional
	Reason string `json:"reason,omitempty"`

	// message is a human-readable description of the status. Empty if the status is True.
	// +optional
	Message string `json:"message,omitempty"`
}

// Conditions is a list of conditions with at most one condition of each type. It is sorted by type, with Ready first.
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
