package opentofu

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backends/opentofu/runner"
)

const (
	// maxRetry bounds the delay before a failed run is retried.
	maxRetry = 15 * time.Minute
	// activeRecheck is how often the backend checks a run whose end a watch also reports; idleRecheck is for instances without runs.
	activeRecheck, idleRecheck = 30 * time.Second, 10 * time.Minute
	// podsRecheck is how often the backend checks pods that are about to end.
	podsRecheck = 2 * time.Second
)

// run is a Job.
type run struct {
	name string
	// sequence counts the runs of an instance; attempt counts consecutive failures of an operation with a revision.
	sequence, attempt int
	operation         runner.Operation
	revision          string
	// active means that the run has not ended; succeeded and finished are valid afterwards. pending means that its pod is not running yet.
	active, pending bool
	succeeded       bool
	finished        time.Time
	uid             types.UID
	image           string
}

// situation is the input of a decision.
type situation struct {
	now time.Time
	// last is the last run; nil if there is none.
	last   *run
	result runner.Result
	// revision is the revision of the inputs; image is that of the runner.
	revision, image string
	// driftInterval is how often the infrastructure is compared; 0 means never. repair enables the repair of differences.
	driftInterval time.Duration
	repair        bool
	// retry is the delay after the first failure.
	retry time.Duration
	// retain keeps the infrastructure when the instance is deleted.
	retain bool
}

// decision is the next step: start a run, cancel one that is not running yet, or reconcile the instance again later.
type decision struct {
	start   runner.Operation
	attempt int
	cancel  bool
	after   time.Duration
}

// decide returns the next step for an instance. Runs never overlap, and outdated inputs do not interrupt a run.
func (s *situation) decide() decision {
	switch {
	case s.last != nil && s.last.pending && (s.last.revision != s.revision || s.last.image != s.image):
		return decision{cancel: true}
	case s.last != nil && s.last.active:
		return decision{after: activeRecheck}
	case s.result.Revision != s.revision:
		return s.startOrWait(runner.Apply)
	case s.driftInterval == 0:
		return decision{after: idleRecheck}
	}
	if due := s.result.Time.Add(s.driftInterval); s.now.Before(due) {
		return decision{after: due.Sub(s.now)}
	}
	if s.repair {
		return s.startOrWait(runner.Repair)
	}
	return s.startOrWait(runner.Check)
}

// startOrWait starts an operation, unless the delay after its last failed run has not passed.
func (s *situation) startOrWait(operation runner.Operation) decision {
	if s.last == nil || s.last.operation != operation || s.last.revision != s.revision || s.last.succeeded && operation != runner.Apply {
		return decision{start: operation, attempt: 1}
	}
	// A run that succeeded but whose result is missing is retried like a failed one.
	if wait := s.last.finished.Add(retryDelay(s.retry, s.last.attempt)).Sub(s.now); wait > 0 {
		return decision{after: wait}
	}
	return decision{start: operation, attempt: s.last.attempt + 1}
}

// retryDelay returns the delay before a retry. It doubles with each attempt.
func retryDelay(first time.Duration, attempt int) time.Duration {
	delay := first
	for range attempt - 1 {
		if delay *= 2; delay >= maxRetry {
			return maxRetry
		}
	}
	return min(delay, maxRetry)
}

// decideDestroy returns the next step for a deleted instance. gone means that nothing is left except the objects that runs used.
func (s *situation) decideDestroy(hasState bool) (next decision, gone bool) {
	switch {
	case s.last != nil && s.last.pending && (s.last.operation != runner.Destroy || s.last.revision != s.revision || s.last.image != s.image):
		return decision{cancel: true}, false
	case s.last != nil && s.last.active:
		return decision{after: activeRecheck}, false
	case s.result.Destroyed || !hasState || s.retain:
		return decision{}, true
	}
	return s.startOrWait(runner.Destroy), false
}

// phase returns the phase and the message for tenants. A failed instance stays Failed until it is ready, so that attempts do not change it.
func (s *situation) phase() (infrastructurev1alpha1.InstancePhase, string) {
	failed := s.last != nil && s.last.operation == runner.Apply && s.last.revision == s.revision && (s.last.attempt > 1 || !s.last.active && !s.last.succeeded)
	switch {
	case s.result.Revision == s.revision && s.result.Drifted:
		return infrastructurev1alpha1.PhaseReady, "Something was changed outside of the platform; its operator can see it."
	case s.result.Revision == s.revision:
		return infrastructurev1alpha1.PhaseReady, ""
	case failed:
		return infrastructurev1alpha1.PhaseFailed, "The instance could not be brought to its spec; the platform tries again."
	case s.result.Outputs != nil:
		return infrastructurev1alpha1.PhaseProvisioning, "The instance is being changed."
	}
	return infrastructurev1alpha1.PhaseProvisioning, "The instance is being created, which may take some minutes."
}
