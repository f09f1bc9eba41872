package runtimecluster

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Get returns an object in the namespace of a tenant, including objects of other owners, or nil. It returns an InvalidError for an
// invalid name.
func (c *Cluster) Get(ctx context.Context, tenant logicalcluster.Name, gvk schema.GroupVersionKind, name string) (*unstructured.Unstructured, error) {
	if err := validateName(gvk, name); err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: Namespace(tenant), Name: name}, object)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading %s %s: %w", gvk.Kind, name, err)
	}
	if err != nil {
		return nil, nil
	}
	return object, nil
}

// List returns the objects in the namespace of a tenant that a selector selects, including objects of other owners. It returns an
// InvalidError if there are more than limit.
func (c *Cluster) List(ctx context.Context, tenant logicalcluster.Name, gvk schema.GroupVersionKind, selector labels.Selector, limit int) ([]*unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk)
	if err := c.Client.List(ctx, list, client.InNamespace(Namespace(tenant)), client.MatchingLabelsSelector{Selector: selector}, client.Limit(int64(limit)+1)); err != nil {
		return nil, fmt.Errorf("listing %s: %w", gvk.Kind, err)
	}
	if len(list.Items) > limit {
		return nil, &InvalidError{fmt.Errorf("listing %s: there are more than %d", gvk.Kind, limit)}
	}
	objects := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		objects[i] = &list.Items[i]
	}
	return objects, nil
}
