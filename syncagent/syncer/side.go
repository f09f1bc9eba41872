package syncer

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

// side is one of the two sides between which objects are synced: the workspace or the service cluster.
type side struct {
	client Client
	name   syncagentv1alpha1.RelatedResourceOrigin
	// own is the resource that the agent may access in a workspace without a claim.
	own schema.GroupKind
	// namespaceLabels are the labels of namespaces that the agent creates, by which it finds empty ones.
	namespaceLabels map[string]string
}

func (re *reconciliation) workspace() side {
	return side{client: re.request.Workspace, name: syncagentv1alpha1.RelatedResourceOriginKcp, own: re.config.WorkspaceResource.GroupKind()}
}

func (s *Syncer) service() side {
	return side{
		client: s.config.Service, name: syncagentv1alpha1.RelatedResourceOriginService,
		namespaceLabels: map[string]string{publication.LabelAgentName: s.config.AgentName},
	}
}

// readError returns a ClaimError if a read failed because of a missing permission claim, and err otherwise.
func (s side) readError(err error, kind schema.GroupVersionKind, resource string) error {
	if s.name == syncagentv1alpha1.RelatedResourceOriginKcp && kind.GroupKind() != s.own && apierrors.IsForbidden(err) {
		return &ClaimError{schema.GroupResource{Group: kind.Group, Resource: resource}, err}
	}
	return err
}

// get returns an object, or nil if it does not exist.
func (s side) get(ctx context.Context, resource workspaces.Resource, key types.NamespacedName) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(resource.GroupVersionKind)
	err := s.client.Get(ctx, key, object)
	switch {
	case isMissing(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", s.describe(resource, key), s.readError(err, resource.GroupVersionKind, resource.Resource))
	}
	return object, nil
}

// list returns the objects that match a selector, in all namespaces if namespace is empty.
func (s side) list(ctx context.Context, resource workspaces.Resource, namespace string, selector labels.Selector) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(resource.GroupVersion().WithKind(resource.Kind + "List"))
	if err := s.client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("listing %s (%s): %w", resource.Resource, s.name, s.readError(err, resource.GroupVersionKind, resource.Resource))
	}
	return list.Items, nil
}

// patch sends a JSON merge patch for an object, and updates the object with the response. It fails with a conflict if the object has been
// replaced.
func (s side) patch(ctx context.Context, object *unstructured.Unstructured, patch map[string]any) error {
	meta, _ := patch["metadata"].(map[string]any)
	meta = orEmpty(meta)
	if uid := object.GetUID(); uid != "" {
		meta["uid"] = string(uid)
	}
	patch["metadata"] = meta
	encoded, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	err = s.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, encoded))
	if isMissing(err) {
		err = apierrors.NewConflict(schema.GroupResource{Group: object.GroupVersionKind().Group, Resource: object.GetKind()}, object.GetName(), err)
	}
	if err != nil {
		return fmt.Errorf("patching %s: %w", s.describeObject(object), err)
	}
	return nil
}

// setFinalizers replaces the finalizers of the version of an object that was read.
func (s side) setFinalizers(ctx context.Context, object *unstructured.Unstructured, finalizers []string) error {
	return s.patch(ctx, object, map[string]any{"metadata": map[string]any{
		"finalizers": finalizers, "resourceVersion": object.GetResourceVersion(),
	}})
}

// delete deletes the version of the object that was read, if it still exists: a later version may have additional owners.
func (s side) delete(ctx context.Context, object *unstructured.Unstructured) error {
	options := []client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationBackground)}
	if uid, version := object.GetUID(), object.GetResourceVersion(); uid != "" && version != "" {
		options = append(options, client.Preconditions{UID: &uid, ResourceVersion: &version})
	}
	if err := s.client.Delete(ctx, object, options...); err != nil && !isMissing(err) {
		return fmt.Errorf("deleting %s: %w", s.describeObject(object), err)
	}
	return nil
}

// ensureNamespace creates a namespace if it does not exist. wait means that a namespace of this name is being deleted.
func (s side) ensureNamespace(ctx context.Context, name string) (wait bool, err error) {
	if name == "" {
		return false, nil
	}
	namespace, err := s.get(ctx, workspaces.Namespaces, types.NamespacedName{Name: name})
	if err != nil || namespace != nil {
		return namespace != nil && namespace.GetDeletionTimestamp() != nil, err
	}
	namespace = newObject(workspaces.Namespaces, types.NamespacedName{Name: name}, nil, metadata{labels: s.namespaceLabels})
	if err := s.client.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return false, fmt.Errorf("creating namespace %s (%s): %w", name, s.name, err)
	}
	return false, nil
}

func (s side) describe(resource workspaces.Resource, key types.NamespacedName) string {
	return fmt.Sprintf("%s %s (%s)", resource.Resource, key, s.name)
}

func (s side) describeObject(object *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s (%s)", object.GroupVersionKind().GroupKind(), client.ObjectKeyFromObject(object), s.name)
}
