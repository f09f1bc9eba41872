package garbage

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// component is the source of events.
const component = "garbage-collector-controller"

// setOwnerReferences sets the owners of an object.
func (c *Collector) setOwnerReferences(ctx context.Context, n nodeSnapshot, object metav1.Object, owners []metav1.OwnerReference) error {
	if len(owners) == len(object.GetOwnerReferences()) {
		return nil
	}
	_, err := c.patchOwners(ctx, n.node, object, owners)
	return client.IgnoreNotFound(err)
}

// patchOwners replaces the owners of the object that was read, and returns the patched object.
func (c *Collector) patchOwners(ctx context.Context, n node, object metav1.Object, owners []metav1.OwnerReference) (metav1.Object, error) {
	return c.patch(ctx, n, object, map[string]any{"ownerReferences": owners})
}

// removeFinalizer removes one of the collector's finalizers.
func (c *Collector) removeFinalizer(ctx context.Context, n nodeSnapshot, finalizer string) error {
	object, err := c.getLatest(ctx, n)
	if object == nil || err != nil {
		return err
	}
	finalizers := object.GetFinalizers()
	if !slices.Contains(finalizers, finalizer) {
		return nil
	}
	left := slices.DeleteFunc(slices.Clone(finalizers), func(other string) bool { return other == finalizer })
	_, err = c.patch(ctx, n.node, object, map[string]any{"finalizers": left})
	return client.IgnoreNotFound(err)
}

// patch changes the metadata of the object that was read; it returns a conflict if the object has changed meanwhile.
func (c *Collector) patch(ctx context.Context, n node, object metav1.Object, metadata map[string]any) (metav1.Object, error) {
	resource, err := c.servedResource(ctx, n)
	if err != nil {
		return nil, err
	}
	metadata["uid"], metadata["resourceVersion"] = object.GetUID(), object.GetResourceVersion()
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, err
	}
	changed, err := c.cfg.Metadata.Resource(resource).Namespace(n.namespace).Patch(ctx, n.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("patching %s %q: %w", resource.GroupResource(), n.name, err)
	}
	return changed, nil
}

// reportInvalidNamespace creates the event that an object has an owner in another namespace.
func (c *Collector) reportInvalidNamespace(ctx context.Context, unresolved unresolvedReference) error {
	n, reference := unresolved.dependent, unresolved.owner
	served, err := c.servedResource(ctx, n)
	if err != nil {
		return err
	}
	namespace := n.namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", n.name, now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: served.GroupVersion().String(), Kind: n.resource.Kind.Kind, Namespace: n.namespace, Name: n.name, UID: n.uid,
		},
		Reason: "OwnerRefInvalidNamespace",
		Message: fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
			reference.APIVersion, reference.Kind, n.namespace, reference.Name, reference.UID, n.namespace),
		Type:                corev1.EventTypeWarning,
		Source:              corev1.EventSource{Component: component},
		ReportingController: component,
		FirstTimestamp:      now, LastTimestamp: now, Count: 1,
	}
	if _, err := c.cfg.Kubernetes.CoreV1().Events(namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("reporting that %s %q has an owner in another namespace: %w", served.GroupResource(), n.name, err)
	}
	return nil
}
