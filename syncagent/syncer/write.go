package syncer

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

// write writes the differences between a desired and an existing copy, and returns the resulting copy. If the state does not contain the
// last content, it compares the desired content with the copy and overwrites all of it. It records a patch before it sends the patch: if
// the result of the request is unknown, the next reconciliation sends the fields again, with their values in the source at that time.
func (re *reconciliation) write(ctx context.Context, to side, key string, copied *unstructured.Unstructured, resource workspaces.Resource, d desired) (result *unstructured.Unstructured, written bool, err error) {
	unfinished, isUnfinished := re.state.Unfinished(key)
	if unchanged, err := re.state.IsLast(key, d.content); err != nil {
		return nil, false, err
	} else if unchanged && !isUnfinished {
		return to.writePatch(ctx, copied, map[string]any{}, d.identification)
	}
	last, found := re.state.Last(key)
	if !found || isUnfinished && unfinished == nil {
		return to.writeAll(ctx, copied, resource, d)
	}
	patch := unionFields(contentPatch(last, d.content), repeatPatch(unfinished, withMetadata(d.content)))
	if len(patch) > 0 {
		if err := re.state.SetUnfinished(key, unionFields(unfinished, patch)); err != nil {
			return nil, false, err
		}
		if err := re.saveState(ctx); err != nil {
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
	meta = maps.Clone(orEmpty(meta))
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
	content, all := contentOf(object), func(string) bool { return true }
	content["metadata"] = map[string]any{"labels": syncable(object.GetLabels(), all), "annotations": syncable(object.GetAnnotations(), all)}
	return content
}

// statusKeySuffix is the suffix of an object's key in the state for its status.
const statusKeySuffix = ".status"

// writeStatus replaces the status of the version of an object that was read, if it differs. If the server defaults or prunes fields of
// the status, writeStatus records the result under a key of the state, so that later passes do not write the same status again.
func (re *reconciliation) writeStatus(ctx context.Context, to side, object *unstructured.Unstructured, status any, key string) (written bool, err error) {
	if equal(object.Object["status"], status) {
		return false, nil
	}
	if known, err := re.state.IsLast(key, statusPair(status, object.Object["status"])); err != nil || known {
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
		re.state.Forget(key)
		return true, nil
	}
	return true, re.state.SetLast(key, statusPair(status, object.Object["status"]))
}

func statusPair(wanted, got any) map[string]any {
	return map[string]any{"wanted": normalize(wanted), "got": normalize(got)}
}

// delete deletes the copy of a source that is being deleted, with its related objects and its state, and then removes the finalizer. It
// ignores filters, because a source with a finalizer has been synced.
func (re *reconciliation) delete(ctx context.Context) (Result, error) {
	held := slices.Contains(re.source.GetFinalizers(), publication.Finalizer)
	if err := re.loadState(ctx); err != nil {
		return Result{}, err
	}
	copied, err := re.findCopy(ctx)
	if err == nil && copied == nil && held {
		copied, err = re.findUnrecordedCopy(ctx)
	}
	if err != nil || copied == nil && !held && !re.state.Exists() {
		return Result{}, err
	}
	if err := re.takeOver(ctx, copied); err != nil {
		return Result{}, err
	}
	if copied == nil || copied.GetDeletionTimestamp() == nil {
		if result, done, err := re.cleanUpRelated(ctx, copied); err != nil || !done {
			return result, err
		}
	}
	if copied != nil {
		return re.deleteCopy(ctx, copied)
	}
	if err := re.Syncer.state.Delete(ctx, re.state); err != nil || !held {
		return Result{}, err
	}
	return Result{}, re.removeFinalizer(ctx)
}

// findUnrecordedCopy lists copies if the state does not record the location of the copy: an earlier reconciliation may have created a copy that no
// cache has yet.
func (re *reconciliation) findUnrecordedCopy(ctx context.Context) (*unstructured.Unstructured, error) {
	if _, recorded := re.state.Copy(); recorded {
		return nil, nil
	}
	found, err := ListedCopies{re.config.Service, re.config.ServiceResource.GroupVersionKind, re.config.AgentName}.Find(ctx, re.request.Source())
	if err != nil {
		return nil, err
	}
	own, err := re.theCopy(found)
	if err != nil || own == nil || claimOf(own, re.identification()) == claimOther {
		return nil, err
	}
	return own, nil
}

func (re *reconciliation) deleteCopy(ctx context.Context, copied *unstructured.Unstructured) (Result, error) {
	if copied.GetDeletionTimestamp() != nil {
		return re.awaitDeletion(copied), nil
	}
	if err := re.service().delete(ctx, copied); err != nil {
		return Result{}, err
	}
	re.record(ctx, ReasonCleanup)
	return re.awaitDeletion(copied), nil
}

func (re *reconciliation) removeFinalizer(ctx context.Context) error {
	finalizers := slices.DeleteFunc(slices.Clone(re.source.GetFinalizers()), isContractFinalizer)
	err := re.workspace().setFinalizers(ctx, re.source, finalizers)
	if err == nil {
		re.record(ctx, ReasonDeleted)
	}
	return err
}

// DeleteOrphan deletes a copy whose primary object does not exist any more, with all other objects that the agent has created for it on
// the service cluster. It does not access the workspace. done is false while an object is being deleted. Callers must have verified that
// the primary object does not exist.
func (s *Syncer) DeleteOrphan(ctx context.Context, copied *unstructured.Unstructured) (done bool, err error) {
	source, identified := SourceOf(copied)
	if !identified {
		return true, s.service().delete(ctx, copied)
	}
	p := &reconciliation{Syncer: s, request: Request{Cluster: source.Cluster, NamespacedName: source.NamespacedName}}
	if err := p.loadState(ctx); err != nil {
		return false, err
	}
	entries, _ := p.state.Related()
	done = true
	for _, entry := range entries {
		if entry.Side != syncagentv1alpha1.RelatedResourceOriginKcp {
			continue
		}
		gone, err := p.removeRelatedCopy(ctx, p.service(), entry)
		if err != nil {
			return false, err
		}
		done = done && gone
	}
	if !done {
		return false, nil // the next attempt finds the remaining objects by the copy
	}
	if err := p.service().delete(ctx, copied); err != nil {
		return false, err
	}
	return true, p.Syncer.state.Delete(ctx, p.state)
}
