package dynamic

import "k8s.io/apiserver/pkg/admission"

// CacheSizes returns the number of logical clusters with prepared configurations, and of compiled policies, of a
// plug-in.
func CacheSizes(plugin admission.Interface) (clusters, compiled int) {
	switch plugin := plugin.(type) {
	case mutatingWebhooks:
		return plugin.prepared.entries.entries.Len(), 0
	case validatingWebhooks:
		return plugin.prepared.entries.entries.Len(), 0
	case mutatingPolicies:
		return plugin.prepared.entries.entries.Len(), plugin.compiled.entries.Len()
	case validatingPolicies:
		return plugin.prepared.entries.entries.Len(), plugin.compiled.entries.Len()
	}
	panic("not a plug-in of this package")
}

// MaxClusters and MaxCompiled export the bounds.
const (
	MaxClusters = maxClusters
	MaxCompiled = maxCompiled
)

// HasSynced reports whether the existence index of a plug-in is synced.
func HasSynced(plugin admission.Interface) bool {
	var index *existenceIndex
	switch plugin := plugin.(type) {
	case mutatingWebhooks:
		index = plugin.existence
	case validatingWebhooks:
		index = plugin.existence
	case mutatingPolicies:
		index = plugin.existence
	case validatingPolicies:
		index = plugin.existence
	}
	index.mu.RLock()
	defer index.mu.RUnlock()
	return index.synced
}
