package syncer

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/mutation"
)

// syncOne updates the copy of a related object. wait means that an object of the same name, or the namespace, is being deleted.
func (re *reconciliation) syncOne(ctx context.Context, r relation) (wait bool, err error) {
	from, to := re.sides(r.Side)
	if err := re.guard(r, nil, nil); err != nil { // before the first write
		return false, err
	}
	if r.Side == syncagentv1alpha1.RelatedResourceOriginKcp {
		if err := re.addOriginFinalizer(ctx, from, r); err != nil {
			return false, err
		}
	}
	copied, err := to.get(ctx, r.resource.Copy, keyOf(r.Copy))
	if err != nil {
		return false, err
	}
	if copied != nil && copied.GetDeletionTimestamp() != nil {
		return true, nil
	}
	d, err := re.desiredRelated(r, copied)
	if err != nil {
		return false, err
	}
	if err := re.guard(r, copied, d.content); err != nil {
		return false, err
	}
	written := copied == nil
	if copied == nil {
		copied, wait, err = re.createRelated(ctx, to, r, d)
	} else {
		copied, written, err = re.writeRelated(ctx, to, r, copied, d)
	}
	if err != nil || wait {
		return wait, err
	}
	if err := re.state.SetLast(r.Key(), d.content); err != nil {
		return false, err
	}
	re.state.SetRelatedCopy(r.Key(), copied.GetUID())
	return false, re.forwardStatus(ctx, to, r, copied, written)
}

// addOriginFinalizer adds finalizers to an origin in the workspace.
func (re *reconciliation) addOriginFinalizer(ctx context.Context, from side, r relation) error {
	finalizers := r.origin.GetFinalizers()
	wanted := withRelatedFinalizers(finalizers, re.relatedFinalizer(), re.maybePrimary(r.Origin), r.Previous)
	if slices.Equal(finalizers, wanted) {
		return nil
	}
	return from.setFinalizers(ctx, r.origin, wanted)
}

// desiredRelated computes the desired state of a related object's copy.
func (re *reconciliation) desiredRelated(r relation, copied *unstructured.Unstructured) (desired, error) {
	d := desired{
		key: keyOf(r.Copy), mutated: r.origin.DeepCopy(),
		identification: metadata{annotations: map[string]string{re.ownerKey(): re.originHash(r)}},
	}
	if copied == nil {
		copied = newObject(r.resource.Copy, d.key, contentOf(r.origin), metadata{})
	}
	if steps := r.resource.Spec.Mutation; steps != nil {
		if err := mutation.Apply(steps.Spec, d.mutated, copied); err != nil {
			return desired{}, fmt.Errorf("mutating the object: %w", err)
		}
	}
	var err error
	d.content, err = convert(contentOf(d.mutated), r.resource.Origin.GroupVersionKind.GroupKind(), r.resource.Copy.GroupVersionKind.GroupKind())
	return d, err
}

func (re *reconciliation) createRelated(ctx context.Context, to side, r relation, d desired) (created *unstructured.Unstructured, wait bool, err error) {
	if r.Side != syncagentv1alpha1.RelatedResourceOriginService || d.key.Namespace != re.request.Namespace { // the namespace of the primary object exists
		if wait, err := to.ensureNamespace(ctx, d.key.Namespace); err != nil || wait {
			return nil, wait, err
		}
	}
	if err := re.removeContent(ctx, r.Key()); err != nil {
		return nil, false, err
	}
	object := newObject(r.resource.Copy, d.key, d.content, d.identification)
	err = to.client.Create(ctx, object)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil, false, to.explainExisting(ctx, r.resource.Copy, d.key)
	case isNamespaceTerminating(err):
		return nil, true, nil
	case err != nil:
		return nil, false, fmt.Errorf("creating %s: %w", to.describe(r.resource.Copy, d.key), err)
	}
	re.record(ctx, ReasonPlaced)
	return object, false, nil
}

// explainExisting returns the error for an object that the agent could not create because it exists. If the agent cannot read it either,
// the object is hidden from the agent: the consumer has accepted the claim for other objects only.
func (s side) explainExisting(ctx context.Context, resource workspaces.Resource, key types.NamespacedName) error {
	switch existing, err := s.get(ctx, resource, key); {
	case err != nil:
		return err
	case existing == nil:
		return &OwnedError{s.describe(resource, key), "is not visible to the agent"}
	}
	return conflict(resource, key, "the object has just been created")
}

func (re *reconciliation) writeRelated(ctx context.Context, to side, r relation, copied *unstructured.Unstructured, d desired) (*unstructured.Unstructured, bool, error) {
	owners := ownersOf(copied, re.ownerKey(), re.originHash(r))
	if !owners.mayWrite(re.state.HasCopy(r.Key(), copied.GetUID())) {
		return nil, false, &OwnedError{to.describeObject(copied), "is no copy of the related object"}
	}
	if err := re.replaceOwnerLabel(ctx, to, copied); err != nil {
		return nil, false, err
	}
	if unchanged, err := re.state.IsLast(r.Key(), d.content); err != nil {
		return nil, false, err
	} else if !unchanged && mustReplace(copied, d.content) {
		if err := to.delete(ctx, copied); err != nil {
			return nil, false, err
		}
		return nil, false, conflict(r.resource.Copy, d.key, "the copy cannot be changed and is replaced")
	}
	result, written, err := re.write(ctx, to, r.Key(), copied, r.resource.Copy, d)
	if err == nil && written {
		re.record(ctx, ReasonSynced)
	}
	return result, written, err
}

// replaceOwnerLabel replaces the label of this primary object by an annotation. It keeps the labels of other owners, because their agents
// may not support annotations.
func (re *reconciliation) replaceOwnerLabel(ctx context.Context, to side, copied *unstructured.Unstructured) error {
	value, found := copied.GetLabels()[re.ownerKey()]
	if !found {
		return nil
	}
	return to.patch(ctx, copied, map[string]any{"metadata": map[string]any{
		"labels": map[string]any{re.ownerKey(): nil}, "annotations": map[string]any{re.ownerKey(): value}, "resourceVersion": copied.GetResourceVersion(),
	}})
}

// mustReplace reports whether a server refuses the update of a copy: the type of Secrets and the data of immutable Secrets and ConfigMaps
// are fixed.
func mustReplace(copied *unstructured.Unstructured, content map[string]any) bool {
	switch copied.GroupVersionKind().GroupKind() {
	case secretKind, configMapKind:
	default:
		return false
	}
	content = withStringData(content)
	changed := func(field string) bool { return !equal(copied.Object[field], content[field]) }
	wantedType, _ := content["type"].(string)
	return wantedType != "" && changed("type") ||
		copied.Object["immutable"] == true && (changed("data") || changed("binaryData") || changed("immutable"))
}

// withStringData returns a content as a server stores it: stringData is the write-only form of data.
func withStringData(content map[string]any) map[string]any {
	texts, _ := content["stringData"].(map[string]any)
	if len(texts) == 0 {
		return content
	}
	existing, _ := content["data"].(map[string]any)
	data := maps.Clone(orEmpty(existing))
	for key, value := range texts {
		text, _ := value.(string)
		data[key] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	content = maps.Clone(content)
	content["data"] = data
	return content
}

// forwardStatus copies the status of an origin to its copy if the publication enables it. written means that this reconciliation has written the
// copy: only then does the consumer get an event that the copy has no status subresource, not in every reconciliation.
func (re *reconciliation) forwardStatus(ctx context.Context, to side, r relation, copied *unstructured.Unstructured, written bool) error {
	if !r.resource.Spec.SyncStatus {
		return nil
	}
	if !r.resource.Copy.HasStatus {
		if written {
			re.warn(ctx, ReasonStatusSubresourceMissing, fmt.Sprintf("The status of %s cannot be synchronized: it has no status subresource.", describeWorkspace(r)))
		}
		return nil
	}
	from := r.origin.DeepCopy()
	if steps := r.resource.Spec.Mutation; steps != nil {
		if err := mutation.Apply(steps.Status, from, copied); err != nil {
			return fmt.Errorf("mutating the status: %w", err)
		}
	}
	_, err := re.writeStatus(ctx, to, copied, from.Object["status"], r.Key()+statusKeySuffix)
	return err
}

// describeWorkspace returns the name of the relation's object in the workspace, which the consumer knows.
func describeWorkspace(r relation) string {
	object := r.Copy
	if r.Side == syncagentv1alpha1.RelatedResourceOriginKcp {
		object = r.Origin
	}
	return fmt.Sprintf("%s %s", object.Kind, keyOf(object))
}
