package doctor

import (
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

// bindings finds APIBindings that are not bound, or not as their export offers now, or that do not go away.
func bindings(facts *Facts, limits Limits) []Finding {
	var found []Finding
	for _, binding := range facts.Bindings {
		finding, ok := brokenBinding(facts, limits, binding)
		if ok {
			finding.Object = "APIBinding " + binding.String()
			found = append(found, finding)
		}
	}
	return found
}

func brokenBinding(facts *Facts, limits Limits, binding Binding) (Finding, bool) {
	if binding.Deleting != nil {
		condition := binding.Conditions.Get(string(apisv1alpha2.BindingResourceDeleteSuccess))
		return Finding{
			Severity: SeverityWarning, Message: withReason("is not deleted", condition), Detail: condition.Message,
			NextStep: "The condition BindingResourceDeleteSuccess names what remains",
		}, isLate(facts, *binding.Deleting, limits)
	}
	condition, failed := binding.Conditions.firstFalse(
		string(apisv1alpha2.APIExportValid), string(apisv1alpha2.InitialBindingCompleted), string(apisv1alpha2.BindingUpToDate),
		string(apisv1alpha2.PermissionClaimsValid), string(apisv1alpha2.PermissionClaimsApplied))
	since := binding.Created
	if failed {
		since = condition.Since
	}
	bound := binding.Phase == string(apisv1alpha2.APIBindingPhaseBound)
	if bound && !failed || !isLate(facts, since, limits) {
		return Finding{}, false
	}
	message := "is not bound to " + binding.ExportName
	if bound {
		message = "is bound to " + binding.ExportName + ", but " + condition.Type + " is False"
	}
	return Finding{
		Severity: SeverityWarning, Message: withReason(message, condition), Detail: condition.Message,
		NextStep: "Ask its owner to check the condition " + condition.Type + ": kubectl get apibinding " + binding.Name + " -o yaml",
	}, true
}
