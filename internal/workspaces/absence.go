package workspaces

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Has reports whether an endpoint has an object. It lists all workspaces, because a workspace that does not bind the export any more would
// refuse the request.
func (e *Endpoint) Has(ctx context.Context, resource Resource, cluster logicalcluster.Name, name types.NamespacedName) (exists bool, err error) {
	selector := fields.Set{"metadata.name": name.Name}
	if name.Namespace != "" {
		selector["metadata.namespace"] = name.Namespace
	}
	err = e.each(ctx, resource, selector.String(), func(c logicalcluster.Name, n types.NamespacedName) { exists = exists || c == cluster && n == name })
	return exists, err
}

// Each calls visit with the logical clusters and names of all objects of a resource. It returns an error unless it has read all of them.
func (e *Endpoint) Each(ctx context.Context, resource Resource, visit func(logicalcluster.Name, types.NamespacedName)) error {
	return e.each(ctx, resource, "", visit)
}

func (e *Endpoint) each(ctx context.Context, resource Resource, fieldSelector string, visit func(logicalcluster.Name, types.NamespacedName)) error {
	client, err := e.Metadata()
	if err != nil {
		return err
	}
	list := func(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
		options.FieldSelector = fieldSelector
		return client.Resource(resource.GroupVersionResource()).List(ctx, options)
	}
	err = ListMetadata(ctx, list, "", func(object *metav1.PartialObjectMetadata) {
		visit(logicalcluster.Of(object), types.NamespacedName{Namespace: object.Namespace, Name: object.Name})
	})
	if err != nil {
		return fmt.Errorf("reading %s at %s: %w", resource.GroupVersionResource().GroupResource(), e.URL, err)
	}
	return nil
}

// ListMetadata calls visit with the metadata of all objects that list returns, page by page.
func ListMetadata(ctx context.Context, list func(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error), labelSelector string, visit func(*metav1.PartialObjectMetadata)) error {
	options := metav1.ListOptions{LabelSelector: labelSelector, Limit: 500}
	for {
		page, err := list(ctx, options)
		if err != nil {
			return err
		}
		for i := range page.Items {
			visit(&page.Items[i])
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}

// IsUnbound reports whether all servers answer, and none has a binding of any workspace. bindings has one client of APIBindings for each
// endpoint.
func IsUnbound(ctx context.Context, bindings []dynamic.ResourceInterface) bool {
	for _, server := range bindings {
		if all, err := server.List(ctx, metav1.ListOptions{Limit: 1}); err != nil || len(all.Items) > 0 {
			return false
		}
	}
	return len(bindings) > 0
}

// IsGone asks the servers whether one logical cluster has bound an export. It is gone if each server reports that it does not serve it, each
// answers for all workspaces, and either one serves other workspaces or the export is unbound. The answer of servers that refuse every
// request, or that temporarily serve nothing, is not sufficient.
func IsGone(ctx context.Context, cluster logicalcluster.Name, bindings []dynamic.ResourceInterface, unbound bool) (isGone, isBound bool) {
	one, servesOthers := metav1.ListOptions{Limit: 1}, false
	for _, server := range bindings {
		_, err := server.List(logicalcluster.With(ctx, cluster), one)
		if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return false, err == nil
		}
		others, err := server.List(ctx, one)
		if err != nil {
			return false, false
		}
		servesOthers = servesOthers || len(others.Items) > 0
	}
	return servesOthers || unbound, false
}
