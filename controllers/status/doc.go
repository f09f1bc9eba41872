// Package status turns what a reconciler found into the conditions, phases and events of its object. It holds the few
// kinds of verdict that decide whether the operator waits, retries or needs the user, and nothing about what is checked.
package status

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// State says who has to act on a result.
type State int

const (
	// Satisfied needs nobody.
	Satisfied State = iota
	// Waiting needs time: something the operator started, or will notice, has to happen.
	Waiting
	// Stalled needs the user: nothing moves until what the message names is changed.
	Stalled
	// Warning is for the user to know. It does not keep the object from being ready.
	Warning
)

// Result is one fact about one part of an object. Type is the condition it stands in; its texts are deterministic, so
// that conditions do not change unless the world did.
type Result struct {
	Type    string
	State   State
	Reason  string
	Message string
}

// OK is a part that is as it should be.
func OK(conditionType, reason, format string, args ...any) Result {
	return Result{conditionType, Satisfied, reason, fmt.Sprintf(format, args...)}
}

// Wait is a part that will be as it should be without anybody's help.
func Wait(conditionType, reason, format string, args ...any) Result {
	return Result{conditionType, Waiting, reason, fmt.Sprintf(format, args...)}
}

// Stall is a part that the user has to change something for.
func Stall(conditionType, reason, format string, args ...any) Result {
	return Result{conditionType, Stalled, reason, fmt.Sprintf(format, args...)}
}

// Warn is a part that does less than the spec says, which the user should know.
func Warn(conditionType, reason, format string, args ...any) Result {
	return Result{conditionType, Warning, reason, fmt.Sprintf(format, args...)}
}

func (f Result) status() metav1.ConditionStatus {
	if f.State == Satisfied {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// Error is a result as an error, for steps that cannot go on.
type Error struct{ Result Result }

// Error is the result's message.
func (e *Error) Error() string { return e.Result.Message }

// AsError wraps a result that ends a step.
func (f Result) AsError() error { return &Error{Result: f} }
