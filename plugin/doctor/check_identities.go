package doctor

import "fmt"

// identities finds bindings to resources of another identity than their export has now: their objects are stored below the old one, and
// the provider does not see them.
func identities(facts *Facts, _ Limits) []Finding {
	current := identitiesOf(facts.Exports)
	var found []Finding
	for _, binding := range facts.Bindings {
		if bound := current.otherThan(binding); bound != "" {
			found = append(found, Finding{
				Severity: binding.export().errorOf(), Object: "APIBinding " + binding.String(),
				Message:  fmt.Sprintf("has resources with the identity %s, but APIExport %s has %s", bound, binding.export().key(), current[binding.export().key()]),
				NextStep: "Restore the Secret of the export's identity with the key that it had",
			})
		}
	}
	return found
}

func (b Binding) export() Object { return Object{Cluster: b.ExportCluster, Name: b.ExportName} }

// exportIdentities are the identities of exports by their keys.
type exportIdentities map[string]string

func identitiesOf(exports []Export) exportIdentities {
	current := make(exportIdentities, len(exports))
	for _, export := range exports {
		current[export.key()] = export.IdentityHash
	}
	return current
}

// otherThan returns an identity of bound resources that their export does not have, "" if there is none.
func (e exportIdentities) otherThan(binding Binding) string {
	identity := e[binding.export().key()]
	for _, bound := range binding.IdentityHashes {
		if identity != "" && bound != identity {
			return bound
		}
	}
	return ""
}
