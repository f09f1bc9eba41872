package doctor

import (
	"slices"
	"time"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// operatorObjects finds an operator that does not run, objects of it that are not ready, and parts of them that are not healthy although they are.
func operatorObjects(facts *Facts, limits Limits) []Finding {
	found := idleOperator(facts, limits)
	for _, object := range facts.Objects {
		if object.Kind == kindBackupSchedule { // of the check of backups
			continue
		}
		if finding, ok := operatorObject(facts, limits, object); ok {
			finding.Object = object.String()
			found = append(found, finding)
		}
	}
	return found
}

// partConditions are those that can be False while Ready is True, and what to do.
var partConditions = []struct {
	condition string
	severity  Severity
	next      string
}{
	{operatorv1alpha1.ConditionEtcdAvailable, SeverityError, "Follow \"Repair etcd\" in docs/operator-etcd.md"},
	{operatorv1alpha1.ConditionEtcdHealthy, SeverityError, "The message has the step; see \"Repair etcd\" in docs/operator-etcd.md"},
	{operatorv1alpha1.ConditionRolledOut, SeverityWarning, "See docs/upgrades.md: a component before it is not healthy, the rollout is paused, or new pods do not become ready"},
	{operatorv1alpha1.ConditionSpecHonored, SeverityWarning, "Remove the fields that the message names, or set others"},
}

func operatorObject(facts *Facts, limits Limits, object HostObject) (Finding, bool) {
	if object.Deleting != nil {
		gone := object.Conditions.Get(operatorv1alpha1.ConditionWorkspacesGone)
		return Finding{
			Severity: SeverityWarning, Message: withReason("is not deleted", gone), Detail: gone.Message,
			NextStep: "See docs/operator-deletion.md: its condition WorkspacesGone names what it waits for",
		}, isLate(facts, *object.Deleting, limits)
	}
	if stalled := object.Conditions.Get(operatorv1alpha1.ConditionStalled); stalled.Status == "True" && isLate(facts, stalled.Since, limits) {
		return Finding{
			Severity: SeverityError, Message: withoutProgress(stalled), Detail: stalled.Message,
			NextStep: "Nothing moves until the object, or what it refers to, is changed: kubectl describe shows how",
		}, true
	}
	ready := object.Conditions.Get(operatorv1alpha1.ConditionReady)
	switch {
	case ready.Status == "":
		return Finding{
			Severity: SeverityError, Message: "has no condition Ready: the operator has not seen it",
			NextStep: "Look at the Deployment of the operator and its log",
		}, isLate(facts, object.Created, limits)
	case ready.Status != "True" && isLate(facts, ready.Since, limits):
		return Finding{
			Severity: SeverityError, Message: withReason("is not ready", ready), Detail: ready.Message,
			NextStep: "See docs/operator-conditions.md for the reason, and kubectl describe for events",
		}, true
	}
	for _, part := range partConditions {
		if condition := object.Conditions.Get(part.condition); condition.Status == "False" && isLate(facts, condition.Since, limits) {
			return Finding{Severity: part.severity, Message: withReason(part.condition+" is False", condition), Detail: condition.Message, NextStep: part.next}, true
		}
	}
	return Finding{
		Severity: SeverityError, Message: "the operator has not read its last change",
		NextStep: "Look at the Deployment of the operator and its log",
	}, object.ObservedGeneration != 0 && object.ObservedGeneration < object.Generation && isLate(facts, object.Changed, limits)
}

func withoutProgress(stalled Condition) string {
	if stalled.Reason == "" {
		return "is stalled"
	}
	return "is stalled: " + stalled.Reason
}

// idleOperator finds that no operator has its Lease any more. Of several Leases, the last one counts: an operator may have been moved to another
// namespace. Without any, operators run without leader election.
func idleOperator(facts *Facts, limits Limits) []Finding {
	if len(facts.Leases) == 0 {
		return nil
	}
	last := slices.MaxFunc(facts.Leases, func(a, b OperatorLease) int { return a.Renewed.Compare(b.Renewed) })
	if !isLate(facts, last.Renewed.Add(last.Duration), limits) {
		return nil
	}
	return []Finding{{
		Severity: SeverityError, Object: "Lease " + last.Namespace + "/" + last.Name,
		Message:  "no operator works: none has renewed it since " + last.Renewed.UTC().Format(time.RFC3339),
		NextStep: "Look at the Deployment of the operator and its log: until it runs, changes are not rolled out, and renewed certificates do not reach kubeconfigs. If it runs without leader election, delete the Lease",
	}}
}
