package sync

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/atoll-dev/atoll/syncagent/orphans"
)

// condition returns the condition Syncing.
func (s *publicationSync) condition(endpointsKnown bool, sliceProblem string) metav1.Condition {
	synced, err := s.copies.Status()
	switch {
	case err != nil:
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonEndpoints, Message: "copies on the service cluster cannot be read"}
	case sliceProblem != "":
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonEndpoints, Message: "the endpoints are not known: " + sliceProblem}
	case !synced || !endpointsKnown:
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonStarting, Message: "objects are being read"}
	}
	endpoints := s.endpoints.All()
	if len(endpoints) == 0 {
		return s.withOrphans(metav1.Condition{Status: metav1.ConditionTrue, Reason: reasonNoEndpoint, Message: "no workspace binds the APIExport"})
	}
	var problems []string
	reason := reasonStarting
	var unresolved []string
	for _, w := range endpoints {
		unresolved = append(unresolved, w.unresolvedRelated()...)
		if err := w.status(); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", w.endpoint.URL, err))
			if !errors.Is(err, errNotSynced) {
				reason = reasonEndpoints
			}
		}
	}
	if len(problems) == 0 {
		slices.Sort(unresolved)
		return s.withOrphans(metav1.Condition{Status: metav1.ConditionTrue, Reason: reasonSyncing, Message: strings.Join(slices.Compact(unresolved), "; ")})
	}
	slices.Sort(problems)
	return metav1.Condition{
		Status: metav1.ConditionFalse, Reason: reason,
		Message: fmt.Sprintf("%d of %d endpoints are not ready: %s", len(problems), len(endpoints), strings.Join(problems, "; ")),
	}
}

// withOrphans adds orphans to the condition of a synchronization that is ready.
func (s *publicationSync) withOrphans(condition metav1.Condition) metav1.Condition {
	if keys := s.orphans.Keys(); len(keys) > 0 {
		condition.Reason, condition.Message = orphans.Reason, orphans.Message(len(keys), keys[0])
	}
	return condition
}
