package syncer

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/internal/workspaces"
)

// write writes the differences between a desired and an existing copy, and returns the resulting copy. If the state does not contain the
// last content, it compares the desired content with the copy and overwrites all of it. It records a patch before it sends the patch: if
// the result of the request is unknown, the next pass sends the fields again, with their values in the source at that time.
func (p *pass) write(ctx context.Context, to side, key string, copied *unstructured.Unstructured, resource workspaces.Resource, d desired) (result *unstructured.Unstructured, written bool, err error) {
	unfinished, isUnfinished := p.state.Unfinished(key)
	if unchanged, err := p.state.IsLast(key, d.content); err != nil {
		return nil, false, err
	} else if unchanged && !isUnfinished {
		return to.writePatch(ctx, copied, map[string]any{}, d.identification)
	}
	last, found := p.state.Last(key)
	if !found || isUnfinished && unfinished == nil {
		return to.writeAll(ctx, copied, resource, d)
	}
	patch := unionFields(contentPatch(last, d.content), repeatPatch(unfinished, withMetadata(d.content)))
	if len(patch) > 0 {
		if err := p.state.SetUnfinished(key, unionFields(unfinished, patch)); err != nil {
			return nil, false, err
		}
		if err := p.saveState(ctx); err != nil {
			return nil, false, err
		}
	}
	return to.writePatch(ctx, copied, patch, d.identification)
}

// writePatch sends a patch together with the missing parts of the identification, for the version that was read: a later version may be
// the copy of another source.
func (s side) writePatch(ctx context.Context, copied *unstructured.Unstructured, patch map[string]any, identification metadata) (*unstructured.Unstructured, bool, error) {
	addMetadata(patch, identification.missing(copied.GetLabels(), copied.GetAnnotations()))
	if len(patch) == 0 {
		return copied, false, nil
	}
	meta, _ := patch["metadata"].(map[string]any)
	meta = maps.Clone(meta)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["resourceVersion"] = copied.GetResourceVersion()
	patch["metadata"] = meta
	return copied, true, s.patch(ctx, copied, patch)
}

// writeAll replaces the content of a copy.
func (s side) writeAll(ctx context.Context, copied *unstructured.Unstructured, resource workspaces.Resource, d desired) (*unstructured.Unstructured, bool, error) {
	key := client.ObjectKeyFromObject(copied)
	current, err := s.get(ctx, resource, key)
	if err != nil {
		return nil, false, err
	}
	if current == nil || current.GetUID() != copied.GetUID() {
		return nil, false, conflict(resource, key, "the copy has been deleted")
	}
	if current.GetDeletionTimestamp() != nil {
		return current, false, nil
	}
	updated := overwrite(current, d.content, d.identification)
	if equal(contentAndMetadata(updated), contentAndMetadata(current)) {
		return current, false, nil
	}
	klog.FromContext(ctx).Info("The last written content is not known; all of the copy is overwritten", "copy", s.describe(resource, key))
	if err := s.client.Update(ctx, updated); err != nil {
		return nil, false, fmt.Errorf("updating %s: %w", s.describe(resource, key), err)
	}
	return updated, true, nil
}

// contentAndMetadata returns all fields of an object that the agent may write.
func contentAndMetadata(object *unstructured.Unstructured) map[string]any {
	content := contentOf(object)
	labels, annotations := map[string]any{}, map[string]any{}
	for key, value := range object.GetLabels() {
		labels[key] = value
	}
	for key, value := range object.GetAnnotations() {
		annotations[key] = value
	}
	content["metadata"] = map[string]any{"labels": labels, "annotations": annotations}
	return content
}

// statusKeySuffix is the suffix of an object's key in the state for its status.
const statusKeySuffix = ".status"

// writeStatus replaces the status of the version of an object that was read, if it differs. If the server defaults or prunes fields of
// the status, writeStatus records the result under a key of the state, so that later passes do not write the same status again.
func (p *pass) writeStatus(ctx context.Context, to side, object *unstructured.Unstructured, status any, key string) (written bool, err error) {
	if equal(object.Object["status"], status) {
		return false, nil
	}
	if known, err := p.state.IsLast(key, statusPair(status, object.Object["status"])); err != nil || known {
		return false, err
	}
	updated := object.DeepCopy()
	if isEmpty(status) {
		delete(updated.Object, "status")
	} else {
		updated.Object["status"] = runtime.DeepCopyJSONValue(status)
	}
	if err := to.client.Status().Update(ctx, updated); err != nil {
		return false, fmt.Errorf("updating the status of %s: %w", to.describeObject(object), err)
	}
	*object = *updated
	if equal(object.Object["status"], status) {
		p.state.Forget(key)
		return true, nil
	}
	return true, p.state.SetLast(key, statusPair(status, object.Object["status"]))
}

func statusPair(wanted, got any) map[string]any {
	return map[string]any{"wanted": normalize(wanted), "got": normalize(got)}
}
