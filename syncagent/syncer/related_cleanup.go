package syncer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/state"
)

// cleanUp deletes the copy of a related object, and then removes the finalizer of its origin. done is false while the copy is being
// deleted.
func (re *reconciliation) cleanUp(ctx context.Context, entry state.Related) (done bool, err error) {
	from, to := re.sides(entry.Side)
	if !re.recordsOther(entry, func(other state.Related) bool { return other.Copy == entry.Copy }) {
		if gone, err := re.removeRelatedCopy(ctx, to, entry); err != nil || !gone {
			return false, err
		}
	}
	if entry.Side == syncagentv1alpha1.RelatedResourceOriginKcp &&
		!re.recordsOther(entry, func(other state.Related) bool { return other.Origin == entry.Origin }) {
		if err := re.releaseOrigin(ctx, from, entry); err != nil {
			return false, err
		}
	}
	re.state.ForgetRelated(entry.Key())
	re.state.Forget(entry.Key() + statusKeySuffix)
	return true, nil
}

// recordsOther reports whether another related object of the primary object has the same origin, or the same copy. They share the
// finalizer, or the annotation.
func (re *reconciliation) recordsOther(entry state.Related, same func(other state.Related) bool) bool {
	recorded, _ := re.state.Related()
	return slices.ContainsFunc(recorded, func(other state.Related) bool {
		return other.Side == entry.Side && other.Key() != entry.Key() && same(other)
	})
}

// removeRelatedCopy deletes a copy that no other primary object uses. gone means that the copy does not exist, or does not belong to this
// primary object.
func (re *reconciliation) removeRelatedCopy(ctx context.Context, to side, entry state.Related) (gone bool, err error) {
	copied, err := to.get(ctx, resourceOf(entry.Copy), keyOf(entry.Copy))
	switch {
	case err != nil && to.name == syncagentv1alpha1.RelatedResourceOriginService && isNotServed(err):
		return true, nil // the objects of a resource are deleted with it
	case err != nil || copied == nil:
		return err == nil, err
	}
	owners := ownersOf(copied, re.ownerKey(), "")
	switch {
	case owners.foreign: // independent of their origin
		if !owners.own {
			return true, nil
		}
		return true, to.patch(ctx, copied, map[string]any{"metadata": map[string]any{
			"labels": map[string]any{re.ownerKey(): nil}, "annotations": map[string]any{re.ownerKey(): nil},
			"resourceVersion": copied.GetResourceVersion(),
		}})
	case !owners.own && !re.state.HasCopy(entry.Key(), copied.GetUID()):
		return true, nil
	}
	if copied.GetDeletionTimestamp() == nil {
		if err := to.delete(ctx, copied); err != nil {
			return false, err
		}
	}
	copied, err = to.get(ctx, resourceOf(entry.Copy), keyOf(entry.Copy))
	return err == nil && copied == nil, err
}

// isTransient reports whether the same request may succeed later.
func isTransient(err error) bool {
	var request *url.Error // the server has not responded
	return errors.As(err, &request) || apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err)
}

func isNotServed(err error) bool {
	return apierrors.IsNotFound(err) && !isMissing(err) || meta.IsNoMatchError(err)
}

// releaseOrigin removes the finalizer from an origin in the workspace.
func (re *reconciliation) releaseOrigin(ctx context.Context, from side, entry state.Related) error {
	origin, err := from.get(ctx, resourceOf(entry.Origin), keyOf(entry.Origin))
	if err != nil || origin == nil {
		return err
	}
	remaining := re.releasedFinalizers(origin.GetFinalizers(), entry)
	if len(remaining) == len(origin.GetFinalizers()) {
		return nil
	}
	return from.setFinalizers(ctx, origin, remaining)
}

// releasedFinalizers returns the remaining finalizers of an origin after the primary object has released it.
func (re *reconciliation) releasedFinalizers(finalizers []string, entry state.Related) []string {
	isOwn := func(finalizer string) bool { return finalizer == re.relatedFinalizer() }
	return WithoutRelatedFinalizers(finalizers, isOwn, re.maybePrimary(entry.Origin) && !entry.Previous)
}

// maybePrimary reports whether an origin may be the primary object of some agent, so that it has the contract's finalizer: exported
// resources have a group. Resources of other exports have one as well.
func (re *reconciliation) maybePrimary(origin state.Object) bool {
	return origin.Group != "" || re.config.WorkspaceResource.Group == ""
}

// cleanUpRelated cleans up the related objects of a primary object that is being deleted. copied is its copy, or nil.
func (re *reconciliation) cleanUpRelated(ctx context.Context, copied *unstructured.Unstructured) (result Result, done bool, err error) {
	entries, known := re.state.Related()
	if !known && len(re.config.Related) > 0 {
		if entries, err = re.locateUnrecorded(ctx, copied); err != nil {
			return Result{}, false, err
		}
	}
	if len(entries) == 0 {
		return Result{}, true, nil
	}
	r := newRelatedReconciliation(re)
	var remaining []state.Related
	for _, entry := range entries {
		if !cleansUpWithPrimary(entry) {
			re.state.ForgetRelated(entry.Key())
			continue
		}
		cleaned, err := re.cleanUp(ctx, entry)
		if IsClaimNotAccepted(err) {
			// The consumer has revoked access to the workspace; the objects on the service cluster are deleted.
			klog.FromContext(ctx).Info("What is in the workspace of a related object is left", "identifier", entry.Identifier, "err", err)
			re.state.ForgetRelated(entry.Key())
			cleaned, err = true, nil
		}
		if err != nil {
			r.failed(entry.Identifier, err)
		}
		if !cleaned {
			remaining = append(remaining, entry)
		}
	}
	re.state.SetRelated(remaining)
	if re.state.Exists() {
		if err := re.saveState(ctx); err != nil {
			r.errs = append(r.errs, err)
		}
	}
	return Result{RequeueAfter: pollDelay}, len(remaining) == 0 && len(r.errs) == 0, errors.Join(r.errs...)
}

// suspend ends the reconciliation over a primary object that is not being deleted and not synced, because of an error or a filter. It releases
// related objects that the user deletes in the meantime: their deletion must not wait until the primary object is synced again.
func (re *reconciliation) suspend(ctx context.Context, cause error) (Result, error) {
	if !slices.Contains(re.source.GetFinalizers(), publication.Finalizer) || isConflict(cause) {
		return Result{}, cause
	}
	if re.state == nil {
		if err := re.loadState(ctx); err != nil {
			return Result{}, errors.Join(cause, err)
		}
	}
	r := newRelatedReconciliation(re)
	r.errs = append(r.errs, cause)
	recorded, _ := re.state.Related()
	for _, entry := range recorded {
		r.releaseDeleted(ctx, entry)
	}
	if remaining, _ := re.state.Related(); len(remaining) < len(recorded) {
		r.errs = append(r.errs, re.saveState(ctx))
	}
	result := Result{}
	if r.wait {
		result.RequeueAfter = pollDelay
	}
	return result, errors.Join(r.errs...)
}

// releaseDeleted cleans up a related object of the workspace that is being deleted.
func (r *relatedReconciliation) releaseDeleted(ctx context.Context, entry state.Related) {
	if entry.Side != syncagentv1alpha1.RelatedResourceOriginKcp {
		return
	}
	origin, err := r.primary.workspace().get(ctx, resourceOf(entry.Origin), keyOf(entry.Origin))
	if err == nil && (origin == nil || origin.GetDeletionTimestamp() == nil) {
		return
	}
	cleaned := false
	if err == nil {
		cleaned, err = r.primary.cleanUp(ctx, entry)
	}
	if err != nil {
		r.failed(entry.Identifier, err)
	}
	r.wait = r.wait || err == nil && !cleaned
}

// locateUnrecorded returns the related objects of a primary object without state, as far as it still references them.
func (re *reconciliation) locateUnrecorded(ctx context.Context, copied *unstructured.Unstructured) ([]state.Related, error) {
	if err := re.readPath(ctx); err != nil {
		klog.FromContext(ctx).V(2).Info("The path of the workspace is not known for the clean-up", "err", err)
	}
	d, err := re.desiredCopy(copied)
	if err != nil {
		klog.FromContext(ctx).Info("The related objects of an object without state cannot be located", "err", err)
		return nil, nil
	}
	if copied == nil {
		copied = newObject(re.config.ServiceResource, d.key, d.content, d.identification)
	}
	var entries []state.Related
	for i := range re.config.Related {
		resource := &re.config.Related[i]
		pairs, err := re.locatePairs(ctx, resource, copied)
		switch {
		case isTransient(err):
			return nil, err
		case err != nil:
			klog.FromContext(ctx).Info("The related objects of an object without state cannot be located", "identifier", resource.Spec.Identifier, "err", err)
		}
		for _, pair := range pairs {
			entries = append(entries, newRelated(resource, pair))
		}
	}
	return entries, nil
}

// annotateRelated lists the related objects that originate on the service cluster in annotations of the primary object. It does not
// change annotations of incomplete identifiers.
func (re *reconciliation) annotateRelated(ctx context.Context, synced []relation, incomplete map[string]bool) error {
	wanted, err := relatedAnnotations(synced)
	if err != nil {
		return err
	}
	patch := annotationPatch(re.source.GetAnnotations(), wanted, incomplete)
	if len(patch) == 0 {
		return nil
	}
	return re.workspace().patch(ctx, re.source, map[string]any{"metadata": map[string]any{"annotations": patch}})
}

const (
	// maxAnnotationName is the limit of the server for the part of a key after the slash. maxAnnotations is far below the limit of the
	// server for all annotations together. The annotations are informational, so the agent leaves out those that exceed either.
	maxAnnotationName = 63
	maxAnnotations    = 64 << 10
)

// relatedAnnotation is the value of an annotation: the name of the copy, and the kind of the origin.
type relatedAnnotation struct {
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// relatedAnnotations returns the annotations of the primary object for the synced relations.
func relatedAnnotations(synced []relation) (map[string]string, error) {
	annotations, counts, size := map[string]string{}, map[string]int{}, 0
	for _, r := range synced {
		if r.Side != syncagentv1alpha1.RelatedResourceOriginService {
			continue
		}
		apiVersion, kind := resourceOf(r.Origin).ToAPIVersionAndKind()
		value, err := json.Marshal(relatedAnnotation{r.Copy.Namespace, r.Copy.Name, apiVersion, kind})
		if err != nil {
			return nil, fmt.Errorf("encoding the annotation of a related object: %w", err)
		}
		name := fmt.Sprintf("%s.%d", r.Identifier, counts[r.Identifier])
		counts[r.Identifier]++
		size += len(publication.AnnotationRelatedPrefix) + len(name) + len(value)
		if len(name) <= maxAnnotationName && size <= maxAnnotations {
			annotations[publication.AnnotationRelatedPrefix+name] = string(value)
		}
	}
	return annotations, nil
}

// annotationPatch returns the changes after which exactly the wanted annotations of related objects exist.
func annotationPatch(existing, wanted map[string]string, incomplete map[string]bool) map[string]any {
	patch := map[string]any{}
	keep := func(key string) bool {
		name := strings.TrimPrefix(key, publication.AnnotationRelatedPrefix)
		return incomplete[name[:max(0, strings.LastIndexByte(name, '.'))]]
	}
	for key, value := range wanted {
		if existing[key] != value && !keep(key) {
			patch[key] = value
		}
	}
	for key := range existing {
		if _, stays := wanted[key]; !stays && strings.HasPrefix(key, publication.AnnotationRelatedPrefix) && !keep(key) {
			patch[key] = nil
		}
	}
	return patch
}
