package opentofu

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backends/opentofu/runner"
)

const (
	// maxRetry bounds the delay before a run that failed is repeated.
	maxRetry = 15 * time.Minute
	// activeRecheck is how often a run is looked at whose end is also reported by a watch; idleRecheck is for instances without runs.
	activeRecheck, idleRecheck = 30 * time.Second, 10 * time.Minute
	// podsRecheck is how often pods are looked at that are about to end.
	podsRecheck = 2 * time.Second
)

// run is a Job.
type run struct {
	name string
	// sequence counts the runs of an instance, attempt those of an operation and a revision that failed one after another.
	sequence, attempt int
	operation         runner.Operation
	revision          string
	// active means that it has not ended; succeeded and finished are set afterwards. pending means that its pod does not run yet.
	active, pending bool
	succeeded       bool
	finished        time.Time
	uid             types.UID
	image           string
}

// situation is what a decision needs.
type situation struct {
	now time.Time
	// last is the last run; nil if there is none.
	last   *run
	result runner.Result
	// revision is that of the inputs, image that of the runner.
	revision, image string
	// driftInterval is how often the infrastructure is compared; 0 means never. repair has differences repaired.
	driftInterval time.Duration
	repair        bool
	// retry is the delay after the first failure.
	retry time.Duration
	// retain keeps the infrastructure when the instance is deleted.
	retain bool
}

// decision is what happens next: a run starts, one that does not run yet is canceled, or the instance is looked at again later.
type decision struct {
	start   runner.Operation
	attempt int
	cancel  bool
	after   time.Duration
}

// decide says what happens next to an instance. Runs never overlap, and a run is not interrupted because its inputs are outdated.
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

// startOrWait starts an operation, unless its last run failed a short time ago.
func (s *situation) startOrWait(operation runner.Operation) decision {
	if s.last == nil || s.last.operation != operation || s.last.revision != s.revision || s.last.succeeded && operation != runner.Apply {
		return decision{start: operation, attempt: 1}
	}
	// A run that succeeded although its result is missing is repeated like one that failed.
	if wait := s.last.finished.Add(retryDelay(s.retry, s.last.attempt)).Sub(s.now); wait > 0 {
		return decision{after: wait}
	}
	return decision{start: operation, attempt: s.last.attempt + 1}
}

// retryDelay doubles with each attempt.
func retryDelay(first time.Duration, attempt int) time.Duration {
	delay := first
	for range attempt - 1 {
		if delay *= 2; delay >= maxRetry {
			return maxRetry
		}
	}
	return min(delay, maxRetry)
}

// decideDestroy says what happens next to an instance that is deleted. gone means that nothing is left but what the runs needed.
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

// phase returns what tenants see. An instance that failed stays so until it is ready: attempts are no news.
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
