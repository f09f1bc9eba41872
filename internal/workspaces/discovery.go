package workspaces

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// NotServedError means that a server does not serve a resource, possibly because it does not serve the resource yet.
type NotServedError struct{ Resource schema.GroupVersionResource }

func (e *NotServedError) Error() string {
	return fmt.Sprintf("%s is not served", strings.Trim(e.Resource.GroupResource().String()+" in version "+e.Resource.Version, " "))
}

// Discover returns the discovery information of a resource, or a NotServedError.
func Discover(from discovery.ServerResourcesInterface, resource schema.GroupVersionResource) (Resource, error) {
	list, err := from.ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return Resource{}, &NotServedError{resource}
	}
	if err != nil {
		return Resource{}, fmt.Errorf("discovering %s: %w", resource.GroupVersion(), err)
	}
	named := func(name string) int {
		return slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name })
	}
	at := named(resource.Resource)
	if at < 0 {
		return Resource{}, &NotServedError{resource}
	}
	return Resource{
		GroupVersionKind: resource.GroupVersion().WithKind(list.APIResources[at].Kind),
		Resource:         resource.Resource,
		Namespaced:       list.APIResources[at].Namespaced,
		HasStatus:        named(resource.Resource+"/status") >= 0,
	}, nil
}

// NewMapper returns a mapper of the given resources. It delegates other resources to another mapper, if that is not nil.
func NewMapper(others meta.RESTMapper, resources ...Resource) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, r := range resources {
		scope := meta.RESTScopeRoot
		if r.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		singular := r.GroupVersion().WithResource(strings.ToLower(r.Kind))
		mapper.AddSpecific(r.GroupVersionKind, r.GroupVersionResource(), singular, scope)
	}
	if others != nil {
		return meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{mapper, others}}
	}
	return mapper
}
