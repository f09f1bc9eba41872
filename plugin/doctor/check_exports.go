package doctor

import (
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

// exports finds APIExports whose identity or addresses are wrong.
func exports(facts *Facts, limits Limits) []Finding {
	var found []Finding
	for _, export := range facts.Exports {
		if export.Deleting != nil {
			continue
		}
		object := "APIExport " + export.String()
		if condition := export.Conditions.Get(string(apisv1alpha2.APIExportIdentityValid)); condition.Status == "False" && isLate(facts, condition.Since, limits) {
			found = append(found, Finding{
				Severity: export.errorOf(), Object: object, Message: withReason("its identity is not valid", condition), Detail: condition.Message,
				NextStep: "Restore the Secret of spec.identity with the key that it had: with another one, consumers lose their objects",
			})
		}
		if condition := export.Conditions.Get(string(apisv1alpha2.APIExportVirtualWorkspaceURLsReady)); condition.Status == "False" && isLate(facts, condition.Since, limits) {
			found = append(found, Finding{
				Severity: SeverityError, Object: object, Message: withReason("its virtual workspaces have no address", condition), Detail: condition.Message,
				NextStep: "Correct spec.virtualWorkspaceURL of the Shard that the condition names: the shard sets it from its flags",
			})
		}
	}
	return found
}
