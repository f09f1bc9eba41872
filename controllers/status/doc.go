// Package status turns what a reconciler found into the conditions, phases and events of its object. It holds the few
// kinds of verdict that decide whether the operator waits, retries or needs the user, and nothing about what is checked.
package status

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind says who has to act on a finding.
type Kind int

const (
	// Fine needs nobody.
	Fine Kind = iota
	// Waiting needs time: something the operator started, or will notice, has to happen.
	Waiting
	// Stalled needs the user: nothing moves until what the message names is changed.
	Stalled
	// Told is for the user to know. It does not keep the object from being ready.
	Told
)

// Finding is one fact about one part of an object. Type is the condition it stands in; its texts are deterministic, so
// that conditions do not change unless the world did.
type Finding struct {
	Type    string
	Kind    Kind
	Reason  string
	Message string
}

// OK is a part that is as it should be.
func OK(conditionType, reason, format string, args ...any) Finding {
	return Finding{conditionType, Fine, reason, fmt.Sprintf(format, args...)}
}

// Wait is a part that will be as it should be without anybody's help.
func Wait(conditionType, reason, format string, args ...any) Finding {
	return Finding{conditionType, Waiting, reason, fmt.Sprintf(format, args...)}
}

// Stall is a part that the user has to change something for.
func Stall(conditionType, reason, format string, args ...any) Finding {
	return Finding{conditionType, Stalled, reason, fmt.Sprintf(format, args...)}
}

// Tell is a part that does less than the spec says, which the user should know.
func Tell(conditionType, reason, format string, args ...any) Finding {
	return Finding{conditionType, Told, reason, fmt.Sprintf(format, args...)}
}

func (f Finding) status() metav1.ConditionStatus {
	if f.Kind == Fine {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// Error is a finding as an error, for steps that cannot go on.
type Error struct{ Finding Finding }

// Error is the finding's message.
func (e *Error) Error() string { return e.Finding.Message }

// AsError wraps a finding that ends a step.
func (f Finding) AsError() error { return &Error{Finding: f} }
