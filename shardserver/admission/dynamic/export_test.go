package dynamic

import "k8s.io/apiserver/pkg/admission"

// Kept returns the number of logical clusters with prepared configurations, and of compiled policies, of a plug-in.
func Kept(plugin admission.Interface) (clusters, compiled int) {
	switch plugin := plugin.(type) {
	case mutatingWebhooks:
		return plugin.known.kept.len(), 0
	case validatingWebhooks:
		return plugin.known.kept.len(), 0
	case mutatingPolicies:
		return plugin.known.kept.len(), plugin.compiled.len()
	case validatingPolicies:
		return plugin.known.kept.len(), plugin.compiled.len()
	}
	panic("no plug-in of this package")
}

// MaxClusters and MaxCompiled export the bounds.
const (
	MaxClusters = maxClusters
	MaxCompiled = maxCompiled
)

// Informed reports whether the presence index of a plug-in is synced.
func Informed(plugin admission.Interface) bool {
	var of *presence
	switch plugin := plugin.(type) {
	case mutatingWebhooks:
		of = plugin.present
	case validatingWebhooks:
		of = plugin.present
	case mutatingPolicies:
		of = plugin.present
	case validatingPolicies:
		of = plugin.present
	}
	of.mu.RLock()
	defer of.mu.RUnlock()
	return of.known
}
