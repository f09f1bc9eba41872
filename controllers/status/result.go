// Package status converts the results of a reconcile to the conditions, phases and events of its object. It defines the few states that
// decide whether the operator waits, retries or requires the user, and nothing about what is checked.
package status

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// State defines who has to act on a result. A higher state is worse.
type State int

const (
	// Satisfied needs no action.
	Satisfied State = iota
	// Warning informs the user that a part of the spec has no effect. The object can be ready.
	Warning
	// Waiting requires time: an operation of the operator, or an event that it watches, has to complete.
	Waiting
	// Stalled requires a change by the user, which the message names.
	Stalled
)

// Reasons of results about objects that the user has to create.
const (
	ReasonSourceNotFound = "SourceNotFound" // of a certificate authority
	ReasonSecretNotFound = "SecretNotFound"
)

// Result is the outcome of a reconcile for one part of an object. Its messages are deterministic, so that conditions change only with the
// state of the cluster.
type Result struct {
	Type    string // of the condition
	State   State
	Reason  string
	Message string
}

// OK returns the result of a part that matches its spec.
func OK(conditionType, reason, format string, args ...any) Result {
	return Result{conditionType, Satisfied, reason, fmt.Sprintf(format, args...)}
}

// Warn returns the result of a part that ignores a field of the spec.
func Warn(conditionType, reason, format string, args ...any) Result {
	return Result{conditionType, Warning, reason, fmt.Sprintf(format, args...)}
}

// Wait returns the result of a part that will match its spec without an action of the user.
func Wait(conditionType, reason, format string, args ...any) Result {
	return Result{conditionType, Waiting, reason, fmt.Sprintf(format, args...)}
}

// Stall returns the result of a part that requires a change by the user.
func Stall(conditionType, reason, format string, args ...any) Result {
	return Result{conditionType, Stalled, reason, fmt.Sprintf(format, args...)}
}

// Join returns one result about several mistakes, with the state and the reason of the first that is worst and the
// messages of all. It has no type if no result is worse than satisfied.
func Join(results ...Result) Result {
	var out Result
	var messages []string
	for _, result := range results {
		if result.Type == "" || result.State == Satisfied {
			continue
		}
		if out.Type == "" || result.State > out.State {
			out = result
		}
		messages = append(messages, result.Message)
	}
	out.Message = strings.Join(messages, "; ")
	return out
}

func (r Result) status() metav1.ConditionStatus {
	if r.State == Satisfied {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// Error is a result as an error, for functions that cannot continue.
type Error struct{ Result Result }

// Error returns the message of the result.
func (e *Error) Error() string { return e.Result.Message }

// AsError wraps a result in an error.
func (r Result) AsError() error { return &Error{Result: r} }
