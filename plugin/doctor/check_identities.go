package doctor

import "fmt"

// identities finds bindings to resources of another identity than their export has now: their objects are stored below the old one, and
// the provider does not see them.
func identities(facts *Facts, _ Limits) []Finding {
	current := map[string]string{}
	for _, export := range facts.Exports {
		current[export.key()] = export.IdentityHash
	}
	var found []Finding
	for _, binding := range facts.Bindings {
		export := Object{Cluster: binding.ExportCluster, Name: binding.ExportName}.key()
		identity, known := current[export]
		if !known || identity == "" {
			continue
		}
		for _, bound := range binding.IdentityHashes {
			if bound != identity {
				found = append(found, Finding{
					Severity: SeverityError, Object: "APIBinding " + binding.String(),
					Message:  fmt.Sprintf("has resources with the identity %s, but APIExport %s has %s", bound, export, identity),
					NextStep: "Restore the Secret of the export's identity with the key that it had",
				})
				break
			}
		}
	}
	return found
}
