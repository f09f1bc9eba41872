package workspaces

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// Resources that need no discovery: every server, or every workspace, has them.
var (
	Namespaces      = Resource{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace"), Resource: "namespaces"}
	Events          = Resource{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Event"), Resource: "events", Namespaced: true}
	Secrets         = Resource{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret"), Resource: "secrets", Namespaced: true}
	LogicalClusters = Resource{GroupVersionKind: corev1alpha1.SchemeGroupVersion.WithKind("LogicalCluster"), Resource: "logicalclusters"}
)

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
