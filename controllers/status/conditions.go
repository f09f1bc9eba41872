package status

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// Reasons of the summary conditions where no result has a better one.
const (
	reasonAsWanted     = "AsWanted"
	reasonNotStalled   = "NotStalled"
	reasonNothingToDo  = "NothingToDo"
	reasonNeedsUser    = "NeedsUser"
	reasonRetrying     = "Retrying"
	maxConditionLength = 32768
)

// Report is everything one reconcile found about an object, in the order in which parts depend on each other.
type Report struct {
	Results []Result
	// Transient is an error that the next attempt may not have.
	Transient error
}

// Set notes a result. A second one of the same type replaces the first.
func (r *Report) Set(result Result) {
	at := slices.IndexFunc(r.Results, func(f Result) bool { return f.Type == result.Type })
	if at >= 0 {
		r.Results[at] = result
		return
	}
	r.Results = append(r.Results, result)
}

// SetWorst notes a result of a part that has several pieces: of two results of one type the worse one stays. One
// without a type says nothing.
func (r *Report) SetWorst(result Result) {
	severity := map[State]int{Satisfied: 0, Warning: 1, Waiting: 2, Stalled: 3}
	if result.Type == "" {
		return
	}
	if had := r.Get(result.Type); had.Type == "" || severity[result.State] > severity[had.State] {
		r.Set(result)
	}
}

// first is the first result of a kind: the one whose part others wait for.
func (r *Report) first(kind State) (Result, bool) {
	for _, result := range r.Results {
		if result.State == kind {
			return result, true
		}
	}
	return Result{}, false
}

// Get is the result of a condition type, or the zero one when that was not looked at.
func (r *Report) Get(conditionType string) Result {
	for _, result := range r.Results {
		if result.Type == conditionType {
			return result
		}
	}
	return Result{}
}

// How often something that may come without an event is looked for. Where the user has to act most changes make an
// event; permissions and quotas do not.
const (
	waitingInterval = 30 * time.Second
	// What a rollout waits for is asked for, and answers in seconds.
	rolloutInterval = 5 * time.Second
	stalledInterval = 2 * time.Minute
)

// RequeueAfter is when to look again although nothing happened; 0 is never.
func (r *Report) RequeueAfter() time.Duration {
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

// Conditions puts the report over the conditions an object has. Types that were not looked at this time keep what they
// had, unless they are of the summary.
func (r *Report) Conditions(conditions []metav1.Condition, generation int64) []metav1.Condition {
	out := slices.Clone(conditions)
	put := func(conditionType string, status metav1.ConditionStatus, reason, message string) {
		if len(message) > maxConditionLength {
			message = message[:maxConditionLength]
		}
		meta.SetStatusCondition(&out, metav1.Condition{
			Type: conditionType, Status: status, Reason: reason, Message: message, ObservedGeneration: generation,
		})
	}
	for _, result := range r.Results {
		put(result.Type, result.status(), result.Reason, result.Message)
	}
	ready, reconciling, stalled := r.summary()
	put(operatorv1alpha1.ConditionReady, ready.status(), ready.Reason, ready.Message)
	put(operatorv1alpha1.ConditionReconciling, reconciling.status(), reconciling.Reason, reconciling.Message)
	put(operatorv1alpha1.ConditionStalled, stalled.status(), stalled.Reason, stalled.Message)
	return out
}

// summary is the triple that kstatus reads. Of Reconciling and Stalled at most one is true.
func (r *Report) summary() (ready, reconciling, stalled Result) {
	idle := Result{State: Waiting, Reason: reasonNothingToDo}
	notStalled := Result{State: Waiting, Reason: reasonNotStalled}
	if f, ok := r.first(Stalled); ok {
		why := Result{State: Satisfied, Reason: f.Reason, Message: f.Message}
		return f, Result{State: Waiting, Reason: reasonNeedsUser}, why
	}
	if r.Transient != nil {
		failed := Result{State: Waiting, Reason: reasonRetrying, Message: "the last attempt failed and is repeated: " + r.Transient.Error()}
		return failed, Result{State: Satisfied, Reason: reasonRetrying, Message: failed.Message}, notStalled
	}
	if f, ok := r.first(Waiting); ok {
		return f, Result{State: Satisfied, Reason: f.Reason, Message: f.Message}, notStalled
	}
	ready = Result{State: Satisfied, Reason: reasonAsWanted, Message: "everything is as the spec wants it"}
	if f, ok := r.first(Warning); ok {
		ready.Message = "running; see condition " + f.Type
	}
	return ready, idle, notStalled
}
