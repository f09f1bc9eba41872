package workspaces

import "k8s.io/apimachinery/pkg/runtime/schema"

// Resource is a resource that a server serves.
type Resource struct {
	schema.GroupVersionKind
	// Resource is its plural name.
	Resource   string
	Namespaced bool
	// HasStatus means that it has a status subresource.
	HasStatus bool
}

// GroupVersionResource returns the resource with its group and version.
func (r Resource) GroupVersionResource() schema.GroupVersionResource {
	return r.GroupVersion().WithResource(r.Resource)
}
