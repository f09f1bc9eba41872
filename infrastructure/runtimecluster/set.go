package runtimecluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/infrastructure/shortname"
)

// inventoryKey is the data key of an inventory in its ConfigMap.
const inventoryKey = "objects"

// member is an object of a set, as recorded in its inventory.
type member struct {
	Group   string `json:"group,omitempty"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
	Name    string `json:"name"`
}

func memberOf(object *unstructured.Unstructured) member {
	gvk := object.GroupVersionKind()
	return member{gvk.Group, gvk.Version, gvk.Kind, object.GetName()}
}

func (m member) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: m.Group, Version: m.Version, Kind: m.Kind}
}

// isSame reports whether two members are the same object; their versions may differ.
func (m member) isSame(other member) bool {
	return m.Group == other.Group && m.Kind == other.Kind && m.Name == other.Name
}

// inventory contains the objects of a set, in the order in which they were applied.
type inventory struct {
	configMap *corev1.ConfigMap // nil if it does not exist
	members   []member
}

// inventoryName returns the name of the ConfigMap of a set.
func inventoryName(s Set) string { return "inventory-" + s.Hash() }

func (c *Cluster) readInventory(ctx context.Context, s Set) (*inventory, error) {
	found := &corev1.ConfigMap{}
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: Namespace(s.Tenant), Name: inventoryName(s)}, found)
	if apierrors.IsNotFound(err) {
		return &inventory{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the inventory: %w", err)
	}
	members, err := membersOf(found)
	return &inventory{found, members}, err
}

func membersOf(found *corev1.ConfigMap) ([]member, error) {
	var members []member
	if err := json.Unmarshal([]byte(found.Data[inventoryKey]), &members); err != nil {
		return nil, fmt.Errorf("reading the inventory %s/%s: %w", found.Namespace, found.Name, err)
	}
	return members, nil
}

// writeInventory writes the members if they have changed. Callers call it before they apply objects, so that every existing object is in an
// inventory.
func (c *Cluster) writeInventory(ctx context.Context, s Set, i *inventory, members []member) error {
	if i.configMap != nil && slices.Equal(i.members, members) {
		return nil
	}
	text, err := json.Marshal(members)
	if err != nil {
		return err
	}
	i.members = members
	if i.configMap == nil {
		marked := labels.Merge(c.labels(s), labels.Set{c.label(labelKind): kindInventory, c.label(labelProvider): c.mark()})
		i.configMap = &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: Namespace(s.Tenant), Name: inventoryName(s), Labels: marked, Annotations: c.annotations(s)},
			Data:       map[string]string{inventoryKey: string(text)},
		}
		if err := c.Client.Create(ctx, i.configMap); err != nil {
			return fmt.Errorf("creating the inventory: %w", err)
		}
		return nil
	}
	i.configMap.Data = map[string]string{inventoryKey: string(text)}
	if err := c.Client.Update(ctx, i.configMap); err != nil {
		return fmt.Errorf("updating the inventory: %w", err)
	}
	return nil
}

// KindError means that objects cannot be created because of their kind, not because of a failure of the server.
type KindError struct{ message string }

func (e *KindError) Error() string { return e.message }

// Check returns an error if objects of a kind cannot be part of a set: a KindError if the kind does not exist in the cluster, or is not
// namespaced.
func (c *Cluster) Check(gvk schema.GroupVersionKind) error {
	mapping, err := c.Client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	switch {
	case meta.IsNoMatchError(err):
		return &KindError{fmt.Sprintf("%s does not exist in the runtime cluster", gvk)}
	case err != nil:
		return fmt.Errorf("looking for %s in the runtime cluster: %w", gvk, err)
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		return &KindError{fmt.Sprintf("%s is not namespaced; objects of instances are in the namespace of their tenant", gvk)}
	}
	return nil
}

// apply applies one object by server-side apply. It refuses an existing object of that name that is not part of the set.
func (c *Cluster) apply(ctx context.Context, s Set, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	object = object.DeepCopy()
	object.SetNamespace(Namespace(s.Tenant))
	object.SetLabels(labels.Merge(object.GetLabels(), c.labels(s)))
	object.SetAnnotations(labels.Merge(object.GetAnnotations(), c.annotations(s)))
	if err := c.checkOwned(ctx, s, object); err != nil {
		return nil, err
	}
	if err := c.generate(ctx, object); err != nil {
		return nil, err
	}
	if err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(Owner), client.ForceOwnership); err != nil {
		return nil, fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return object, nil
}

// checkOwned returns an error if the existing object belongs to another instance or to none, or is being deleted.
func (c *Cluster) checkOwned(ctx context.Context, s Set, object *unstructured.Unstructured) error {
	existing := &metav1.PartialObjectMetadata{}
	existing.SetGroupVersionKind(object.GroupVersionKind())
	err := c.Client.Get(ctx, client.ObjectKeyFromObject(object), existing)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	if !c.Selector(s).Matches(labels.Set(existing.Labels)) {
		return fmt.Errorf("%s %s %w", object.GetKind(), object.GetName(), errForeign)
	}
	if existing.DeletionTimestamp != nil {
		return fmt.Errorf("%s %s %w", object.GetKind(), object.GetName(), errTerminating)
	}
	return nil
}

// served returns the kind of an object in a version that the cluster serves: the cluster may have stopped serving the recorded version.
func (c *Cluster) served(m member) (schema.GroupVersionKind, error) {
	kind, mapper := m.gvk(), c.Client.RESTMapper()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		mapping, err = mapper.RESTMapping(kind.GroupKind())
	}
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return mapping.GroupVersionKind, nil
}

// delete deletes one object of a set, and reports whether it is gone.
func (c *Cluster) delete(ctx context.Context, s Set, m member) (gone bool, err error) {
	kind, err := c.served(m)
	if meta.IsNoMatchError(err) {
		return true, nil // a kind that does not exist has no objects
	}
	if err != nil {
		return false, fmt.Errorf("looking for %s in the runtime cluster: %w", m.gvk(), err)
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	err = c.Client.Get(ctx, types.NamespacedName{Namespace: Namespace(s.Tenant), Name: m.Name}, object)
	switch {
	case apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) && apierrors.IsNotFound(err): // the version is not served; the object may exist
		if known, ok := c.Client.RESTMapper().(meta.ResettableRESTMapper); ok {
			known.Reset()
		}
		return false, fmt.Errorf("the runtime cluster does not serve %s any more: %s is looked for in another version next", kind, m.Name)
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading %s %s: %w", m.Kind, m.Name, err)
	case object.Labels[c.label(labelInstance)] != shortname.Of(s.Instance, shortname.Label) || object.Labels[c.label(labelTemplate)] != shortname.Of(s.Template, shortname.Label):
		return true, nil // another owner has created it since
	case object.DeletionTimestamp != nil:
		return false, nil
	}
	uid := object.UID
	err = c.Client.Delete(ctx, object, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil && !apierrors.IsConflict(err) {
		return false, fmt.Errorf("deleting %s %s: %w", m.Kind, m.Name, err)
	}
	// An object without finalizers is gone immediately.
	err = c.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading %s %s: %w", m.Kind, m.Name, err)
	}
	return err != nil, nil
}

// Delete deletes the objects of a set in reverse order, and reports whether all of them are gone. It deletes an object only after all
// objects that were applied later are gone.
func (c *Cluster) Delete(ctx context.Context, s Set) (gone bool, err error) {
	current, err := c.readInventory(ctx, s)
	if err != nil || current.configMap == nil || c.isForeign(current.configMap) {
		return err == nil, err
	}
	return c.deleteSet(ctx, s, current.configMap)
}

// deleteSet deletes the objects of an inventory, and then the inventory.
func (c *Cluster) deleteSet(ctx context.Context, s Set, found *corev1.ConfigMap) (gone bool, err error) {
	members, err := membersOf(found)
	if err != nil {
		return false, err
	}
	for _, m := range slices.Backward(members) {
		if gone, err := c.delete(ctx, s, m); err != nil || !gone {
			return false, err
		}
	}
	return true, client.IgnoreNotFound(c.Client.Delete(ctx, found))
}
