package status

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// Reasons of the summary conditions where no finding has a better one.
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
	Findings []Finding
	// Transient is an error that the next attempt may not have.
	Transient error
}

// Add notes a finding. A second one of the same type replaces the first.
func (r *Report) Add(finding Finding) {
	at := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Type == finding.Type })
	if at >= 0 {
		r.Findings[at] = finding
		return
	}
	r.Findings = append(r.Findings, finding)
}

// AddWorse notes a finding of a part that has several pieces: of two findings of one type the worse one stays. One
// without a type says nothing.
func (r *Report) AddWorse(finding Finding) {
	severity := map[Kind]int{Fine: 0, Told: 1, Waiting: 2, Stalled: 3}
	if finding.Type == "" {
		return
	}
	if had := r.Find(finding.Type); had.Type == "" || severity[finding.Kind] > severity[had.Kind] {
		r.Add(finding)
	}
}

// first is the first finding of a kind: the one whose part others wait for.
func (r *Report) first(kind Kind) (Finding, bool) {
	for _, finding := range r.Findings {
		if finding.Kind == kind {
			return finding, true
		}
	}
	return Finding{}, false
}

// Find is the finding of a condition type, or the zero one when that was not looked at.
func (r *Report) Find(conditionType string) Finding {
	for _, finding := range r.Findings {
		if finding.Type == conditionType {
			return finding
		}
	}
	return Finding{}
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
	if rollout := r.Find(operatorv1alpha1.ConditionRolledOut); rollout.Type != "" && rollout.Kind != Fine {
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
	for _, finding := range r.Findings {
		put(finding.Type, finding.status(), finding.Reason, finding.Message)
	}
	ready, reconciling, stalled := r.summary()
	put(operatorv1alpha1.ConditionReady, ready.status(), ready.Reason, ready.Message)
	put(operatorv1alpha1.ConditionReconciling, reconciling.status(), reconciling.Reason, reconciling.Message)
	put(operatorv1alpha1.ConditionStalled, stalled.status(), stalled.Reason, stalled.Message)
	return out
}

// summary is the triple that kstatus reads. Of Reconciling and Stalled at most one is true.
func (r *Report) summary() (ready, reconciling, stalled Finding) {
	idle := Finding{Kind: Waiting, Reason: reasonNothingToDo}
	notStalled := Finding{Kind: Waiting, Reason: reasonNotStalled}
	if f, ok := r.first(Stalled); ok {
		why := Finding{Kind: Fine, Reason: f.Reason, Message: f.Message}
		return f, Finding{Kind: Waiting, Reason: reasonNeedsUser}, why
	}
	if r.Transient != nil {
		failed := Finding{Kind: Waiting, Reason: reasonRetrying, Message: "the last attempt failed and is repeated: " + r.Transient.Error()}
		return failed, Finding{Kind: Fine, Reason: reasonRetrying, Message: failed.Message}, notStalled
	}
	if f, ok := r.first(Waiting); ok {
		return f, Finding{Kind: Fine, Reason: f.Reason, Message: f.Message}, notStalled
	}
	ready = Finding{Kind: Fine, Reason: reasonAsWanted, Message: "everything is as the spec wants it"}
	if f, ok := r.first(Told); ok {
		ready.Message = "running; see condition " + f.Type
	}
	return ready, idle, notStalled
}
