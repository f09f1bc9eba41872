package openapi

import (
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Definitions are the generated definitions with references to Kubernetes' own types by the names that Kubernetes
// publishes those under. The generator knows such names for the packages that it generates alone and writes Go names
// for all others.
func Definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	definitions := GetOpenAPIDefinitions(func(path string) spec.Ref { return ref(modelName(path)) })
	for name, definition := range definitions {
		for i, dependency := range definition.Dependencies {
			definition.Dependencies[i] = modelName(dependency)
		}
		definitions[name] = definition
	}
	return definitions
}

// modelName turns "k8s.io/api/core/v1.Secret" into "io.k8s.api.core.v1.Secret" and leaves published names alone.
func modelName(name string) string {
	if strings.HasPrefix(name, "k8s.io/") {
		return util.ToRESTFriendlyName(name)
	}
	return name
}
