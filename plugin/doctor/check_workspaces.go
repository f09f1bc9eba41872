package doctor

import (
	"fmt"
	"strings"
	"time"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

// workspaces finds Workspaces that do not become ready, or do not go away, and the cause.
func workspaces(facts *Facts, limits Limits) []Finding {
	var found []Finding
	for _, workspace := range facts.Workspaces {
		if finding, ok := stuck(facts, limits, workspace); ok {
			finding.Object = "workspace " + workspace.String()
			found = append(found, finding)
		}
	}
	return found
}

func stuck(facts *Facts, limits Limits, workspace Workspace) (Finding, bool) {
	if workspace.Deleting != nil {
		return stuckDeletion(facts, limits, workspace)
	}
	since := workspace.Created
	for _, condition := range workspace.Conditions { // one that was ready before has changed since
		if condition.Status == "False" && condition.Since.After(since) {
			since = condition.Since
		}
	}
	if !isLate(facts, since, limits) {
		return Finding{}, false
	}
	switch corev1alpha1.LogicalClusterPhaseType(workspace.Phase) {
	case corev1alpha1.LogicalClusterPhaseReady, corev1alpha1.LogicalClusterPhaseInactive:
		return Finding{}, false
	case corev1alpha1.LogicalClusterPhaseScheduling, "":
		condition := workspace.Conditions.Get(string(tenancyv1alpha1.WorkspaceScheduled))
		return Finding{
			Severity: workspace.errorOf(), Message: withReason("has no shard", condition), Detail: condition.Message,
			NextStep: "Open a shard that its spec.location.selector matches, or correct the selector",
		}, true
	case corev1alpha1.LogicalClusterPhaseInitializing:
		return stuckInitialization(workspace), true
	case corev1alpha1.LogicalClusterPhaseUnavailable, corev1alpha1.LogicalClusterPhaseTerminating, corev1alpha1.LogicalClusterPhaseDeleting:
	}
	severity, next := SeverityError, "The conditions of the Workspace name what is missing"
	if workspace.IsMount {
		severity, next = SeverityWarning, "Ask its owner to check the object of the mount"
	}
	condition, _ := workspace.Conditions.firstFalse(string(tenancyv1alpha1.WorkspaceMountReady), string(corev1alpha1.WorkspaceInitialized), string(tenancyv1alpha1.WorkspaceScheduled))
	return Finding{Severity: severity, Message: withReason("is in phase "+workspace.Phase, condition), Detail: condition.Message, NextStep: next}, true
}

// stuckInitialization is an error if a controller of the server has to act, not one of a workspace type, in a workspace of administrators.
func stuckInitialization(workspace Workspace) Finding {
	condition, _ := workspace.Conditions.firstFalse(string(corev1alpha1.APIBindingsInitialized), string(corev1alpha1.WorkspaceInitialized))
	finding := Finding{
		Severity: SeverityWarning, Message: "is not initialized, waits for " + strings.Join(workspace.Initializers, ", "), Detail: condition.Message,
		NextStep: "The controller of that initializer has to act: check its log. It belongs to the owner of the workspace type",
	}
	for _, initializer := range workspace.Initializers {
		if strings.HasPrefix(initializer, "system:") {
			finding.Severity, finding.NextStep = workspace.errorOf(), "Look at the default APIBindings of its type, and at the exports that they name"
		}
	}
	return finding
}

func stuckDeletion(facts *Facts, limits Limits, workspace Workspace) (Finding, bool) {
	if !isLate(facts, *workspace.Deleting, limits) {
		return Finding{}, false
	}
	condition := workspace.Conditions.Get(string(corev1alpha1.WorkspaceContentDeleted))
	finding := Finding{
		Severity: SeverityWarning, Detail: condition.Message,
		Message:  withReason(fmt.Sprintf("is being deleted for %s", facts.ReadAt.Sub(*workspace.Deleting).Round(time.Second)), condition),
		NextStep: "The condition WorkspaceContentDeleted names the objects that remain and their finalizers: the controllers of these have to act",
	}
	if len(workspace.Terminators) > 0 {
		finding.Message = "is being deleted, waits for " + strings.Join(workspace.Terminators, ", ")
		finding.NextStep = "The controller of that terminator has to act: check its log. It belongs to the owner of the workspace type"
	}
	return finding, true
}

// withReason adds the reason of a condition to a message.
func withReason(message string, condition Condition) string {
	if condition.Reason == "" || condition.Status == "True" {
		return message
	}
	return message + ": " + condition.Reason
}
