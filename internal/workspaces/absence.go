package workspaces

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Object is the name of an object in a workspace.
type Object struct {
	Cluster logicalcluster.Name
	types.NamespacedName
}

// Missing returns those of the given objects of a resource that exist at no endpoint. It lists all workspaces first, with one request to each
// endpoint, because a workspace that does not bind the export any more would refuse requests. Between the moments at which one shard hands a
// workspace over and another one takes it over, no such list has its objects, but both shards answer that it is unavailable, which is an error
// here. So each workspace of an object that was not found is asked for, too. If that does not answer, its objects are left out, and the error says so: one that is
// unavailable until an administrator acts does not hide the others. Without the lists nothing is known.
func Missing(ctx context.Context, endpoints []*Endpoint, resource Resource, objects []Object) ([]Object, error) {
	left, selector := map[Object]bool{}, ""
	if len(objects) == 1 {
		selector = selectorOf(objects[0].NamespacedName)
	}
	for _, object := range objects {
		left[object] = true
	}
	found := func(cluster logicalcluster.Name, name types.NamespacedName) { delete(left, Object{cluster, name}) }
	for _, endpoint := range endpoints {
		if len(left) == 0 {
			return nil, nil
		}
		if err := endpoint.each(ctx, resource, selector, found); err != nil {
			return nil, err
		}
	}
	clusters := map[logicalcluster.Name]bool{}
	for object := range left {
		clusters[object.Cluster] = true
	}
	var failed []error
	for cluster := range clusters {
		if err := ask(withoutRepetition(logicalcluster.With(ctx, cluster)), endpoints, resource, selector, found); err != nil {
			failed = append(failed, fmt.Errorf("looking for logical cluster %q: %w", cluster, err))
			maps.DeleteFunc(left, func(object Object, _ bool) bool { return object.Cluster == cluster })
		}
	}
	return slices.Collect(maps.Keys(left)), errors.Join(failed...)
}

// ask lists the objects of the logical cluster of the context at all endpoints. One that does not serve it has none.
func ask(ctx context.Context, endpoints []*Endpoint, resource Resource, selector string, found func(logicalcluster.Name, types.NamespacedName)) error {
	for _, endpoint := range endpoints {
		if err := endpoint.each(ctx, resource, selector, found); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return err
		}
	}
	return nil
}

// selectorOf returns the field selector of objects of a name, in all workspaces.
func selectorOf(name types.NamespacedName) string {
	selector := fields.Set{"metadata.name": name.Name}
	if name.Namespace != "" {
		selector["metadata.namespace"] = name.Namespace
	}
	return selector.String()
}

// Each calls visit with the logical clusters and names of all objects of a resource. It returns an error unless it has read all of them.
func (e *Endpoint) Each(ctx context.Context, resource Resource, visit func(logicalcluster.Name, types.NamespacedName)) error {
	return e.each(ctx, resource, "", visit)
}

// each is Each for the objects that match a field selector, in the logical cluster of the context if it has one.
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
