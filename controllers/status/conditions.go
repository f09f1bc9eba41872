package status

import (
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// Reasons of the summary conditions that come from no single result.
const (
	reasonAsWanted     = "AsWanted"
	reasonNotStalled   = "NotStalled"
	reasonNothingToDo  = "NothingToDo"
	reasonNeedsUser    = "NeedsUser"
	reasonRetrying     = "Retrying"
	maxConditionLength = 32768
)

// Report collects the results of one reconcile of an object, in the order in which its parts depend on each other.
type Report struct {
	Results []Result
	// Transient is an error that may not occur in the next attempt.
	Transient error
	// Requeue is when to reconcile again, instead of the delay that the results require.
	Requeue time.Duration

	removed []string
	within  time.Duration
}

// Set stores a result and replaces an earlier one of its type.
func (r *Report) Set(result Result) {
	at := slices.IndexFunc(r.Results, func(have Result) bool { return have.Type == result.Type })
	if at >= 0 {
		r.Results[at] = result
		return
	}
	r.Results = append(r.Results, result)
}

// SetWorst stores a result of a part that has several pieces: it keeps the worse of two results of one type. It ignores a result without
// a type.
func (r *Report) SetWorst(result Result) {
	if result.Type == "" {
		return
	}
	if have := r.Get(result.Type); have.Type == "" || result.State > have.State {
		r.Set(result)
	}
}

// SetResult stores the result of a function, or the one in its error. It returns any other error.
func (r *Report) SetResult(result Result, err error) error {
	var statusErr *Error
	switch {
	case errors.As(err, &statusErr):
		r.Set(statusErr.Result)
	case err != nil:
		return err
	default:
		r.Set(result)
	}
	return nil
}

// RemoveCondition removes the condition of a type from the object, unless the report has a result of that type.
func (r *Report) RemoveCondition(conditionType string) { r.removed = append(r.removed, conditionType) }

// Get returns the result of a condition type, or the zero Result if it was not checked.
func (r *Report) Get(conditionType string) Result {
	for _, result := range r.Results {
		if result.Type == conditionType {
			return result
		}
	}
	return Result{}
}

// first returns the first result with a state, on which later ones depend.
func (r *Report) first(state State) (Result, bool) {
	for _, result := range r.Results {
		if result.State == state {
			return result, true
		}
	}
	return Result{}, false
}

// Intervals at which an object is reconciled again without an event.
const (
	waitingInterval = 30 * time.Second
	// The health of servers, on which a rollout depends, changes without an event.
	rolloutInterval = 5 * time.Second
	// Most corrections of the user cause events; changes of permissions and quotas do not.
	stalledInterval = 2 * time.Minute
)

// RequeueWithin reconciles again within a duration: for states that change without an event.
func (r *Report) RequeueWithin(duration time.Duration) {
	if r.within == 0 || duration < r.within {
		r.within = duration
	}
}

// RequeueAfter returns when to reconcile again without an event; 0 is never.
func (r *Report) RequeueAfter() time.Duration {
	after := r.requeueAfter()
	if r.within > 0 && (after == 0 || r.within < after) {
		return r.within
	}
	return after
}

func (r *Report) requeueAfter() time.Duration {
	if r.Requeue > 0 {
		return r.Requeue
	}
	if rollout := r.Get(operatorv1alpha1.ConditionRolledOut); rollout.Type != "" && rollout.State != Satisfied {
		return rolloutInterval
	}
	if _, waiting := r.first(Waiting); waiting {
		return waitingInterval
	}
	if _, stalled := r.first(Stalled); stalled {
		return stalledInterval
	}
	return 0
}

// Conditions merges the report into the conditions of an object. Types without a result keep their condition, except
// for the summary, which is always computed.
func (r *Report) Conditions(conditions []metav1.Condition, generation int64) []metav1.Condition {
	out := slices.Clone(conditions)
	setCondition := func(conditionType string, status metav1.ConditionStatus, reason, message string) {
		if len(message) > maxConditionLength {
			message = message[:maxConditionLength]
		}
		meta.SetStatusCondition(&out, metav1.Condition{
			Type: conditionType, Status: status, Reason: reason, Message: message, ObservedGeneration: generation,
		})
	}
	for _, conditionType := range r.removed {
		if r.Get(conditionType).Type == "" {
			meta.RemoveStatusCondition(&out, conditionType)
		}
	}
	for _, result := range r.Results {
		setCondition(result.Type, result.status(), result.Reason, result.Message)
	}
	ready, reconciling, stalled := r.summary()
	setCondition(operatorv1alpha1.ConditionReady, ready.status(), ready.Reason, ready.Message)
	setCondition(operatorv1alpha1.ConditionReconciling, reconciling.status(), reconciling.Reason, reconciling.Message)
	setCondition(operatorv1alpha1.ConditionStalled, stalled.status(), stalled.Reason, stalled.Message)
	return out
}

// summary computes the three conditions that kstatus reads. Of Reconciling and Stalled at most one is true.
func (r *Report) summary() (ready, reconciling, stalled Result) {
	notReconciling := Result{State: Waiting, Reason: reasonNothingToDo}
	notStalled := Result{State: Waiting, Reason: reasonNotStalled}
	if first, ok := r.first(Stalled); ok {
		stalled = Result{State: Satisfied, Reason: first.Reason, Message: first.Message}
		return first, Result{State: Waiting, Reason: reasonNeedsUser}, stalled
	}
	if r.Transient != nil {
		ready = Result{State: Waiting, Reason: reasonRetrying, Message: "the last attempt failed and is retried: " + r.Transient.Error()}
		return ready, Result{State: Satisfied, Reason: reasonRetrying, Message: ready.Message}, notStalled
	}
	if first, ok := r.first(Waiting); ok {
		return first, Result{State: Satisfied, Reason: first.Reason, Message: first.Message}, notStalled
	}
	ready = Result{State: Satisfied, Reason: reasonAsWanted, Message: "everything matches the spec"}
	if warning, ok := r.first(Warning); ok {
		ready.Message = "running; see condition " + warning.Type
	}
	return ready, notReconciling, notStalled
}
