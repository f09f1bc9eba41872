package related

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

// OriginResource returns the resource of an entry on the side of the origin.
func OriginResource(spec syncagentv1alpha1.RelatedResourceSpec) schema.GroupVersionResource {
	switch spec.Kind {
	case "ConfigMap":
		return schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	case "Secret":
		return schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	}
	return schema.GroupVersionResource{Group: spec.Group, Version: spec.Version, Resource: spec.Resource}
}

// CopyResource returns the resource of an entry on the other side.
func CopyResource(spec syncagentv1alpha1.RelatedResourceSpec) schema.GroupVersionResource {
	resource := OriginResource(spec)
	projection := spec.Projection
	if projection == nil {
		return resource
	}
	if projection.Group != "" {
		resource.Group = projection.Group
	}
	if projection.Version != "" {
		resource.Version = projection.Version
	}
	if projection.Resource != "" {
		resource.Resource = projection.Resource
	}
	return resource
}
