package openapi

import (
	"maps"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// kindsExtension lists the kinds that a definition is the schema of.
const kindsExtension = "x-kubernetes-group-version-kind"

// WithoutInternal wraps a function that names definitions (common.Config.GetDefinitionName). kcp's types are their own
// internal version, which must not be published: it is removed from the list of kinds.
func WithoutInternal(name func(string) (string, spec.Extensions)) func(string) (string, spec.Extensions) {
	return func(goName string) (string, spec.Extensions) {
		result, extensions := name(goName)
		kinds, ok := extensions[kindsExtension].([]any)
		if !ok {
			return result, extensions
		}
		served := make([]any, 0, len(kinds))
		for _, kind := range kinds {
			if fields, ok := kind.(map[string]any); ok && fields["version"] == runtime.APIVersionInternal {
				continue
			}
			served = append(served, kind)
		}
		extensions = maps.Clone(extensions)
		extensions[kindsExtension] = served
		return result, extensions
	}
}
