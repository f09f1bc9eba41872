package syncer

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/related"
	"github.com/atoll-dev/atoll/syncagent/state"
)

// takeOver creates a state from the records of api-syncagent, which this agent replaces under the same name: the content that it wrote
// last, and which objects are copies of related objects, because these copies have no labels of their own that identify them. found is
// the copy of the primary object, or nil. takeOver must run before the agent writes the copy: related objects are located by the content
// that api-syncagent wrote, not by later changes of the consumer.
func (re *reconciliation) takeOver(ctx context.Context, found *unstructured.Unstructured) error {
	if re.state.Claimed() || !slices.Contains(re.source.GetFinalizers(), publication.Finalizer) {
		return nil // no agent has synced it before
	}
	previous, err := re.Syncer.state.LoadPrevious(ctx, re.request.Source().Labels(), re.request.NamespacedName,
		re.config.WorkspaceResource.GroupKind(), re.config.ServiceResource.GroupKind())
	if err != nil || previous == nil && !isPreviousCopy(found) {
		return err
	}
	if previous != nil {
		re.state.SetPrevious(previous)
	}
	if found != nil {
		if err := re.takeOverObjects(ctx, found, previous); err != nil {
			return err
		}
	}
	klog.FromContext(ctx).Info("An object of api-syncagent has been taken over", "state", previous != nil)
	return re.saveState(ctx)
}

// isPreviousCopy reports whether api-syncagent has created a copy: such a copy does not name its resource.
func isPreviousCopy(copied *unstructured.Unstructured) bool {
	return copied != nil && copied.GetLabels()[publication.LabelRemoteResource] == "" && copied.GetAnnotations()[publication.AnnotationRemoteResource] == ""
}

// takeOverObjects records the copy of the primary object and the copies of related objects. It accepts nil if the state of api-syncagent
// does not exist.
func (re *reconciliation) takeOverObjects(ctx context.Context, found *unstructured.Unstructured, previous *state.Previous) error {
	re.home = found.GetNamespace()
	re.state.SetCopy(client.ObjectKeyFromObject(found))
	re.state.SetCopyUID(found.GetUID())
	if previous != nil {
		if err := re.state.SetLast(re.primaryKey(), contentOf(previous.Primary)); err != nil {
			return err
		}
	}
	return re.takeOverRelated(ctx, found, previous)
}

// takeOverRelated records the copies of related objects that api-syncagent has created.
func (re *reconciliation) takeOverRelated(ctx context.Context, found *unstructured.Unstructured, previous *state.Previous) error {
	switch err := re.readPath(ctx); {
	case isTransient(err):
		return err
	case err != nil: // a deletion must not wait for it
		klog.FromContext(ctx).Info("The path of the workspace is not known for related objects of api-syncagent", "err", err)
	}
	var entries []state.Related
	for i := range re.config.Related {
		resource := &re.config.Related[i]
		pairs, err := re.locatePrevious(ctx, resource, found, previous)
		switch {
		case isTransient(err):
			return err
		case err != nil: // api-syncagent could not locate them either
			klog.FromContext(ctx).Info("Related objects of api-syncagent cannot be located", "identifier", resource.Spec.Identifier, "err", err)
			continue
		}
		for _, pair := range pairs {
			entry := newRelated(resource, pair)
			known, err := re.takeOverCopy(ctx, resource, &entry, previous)
			if err != nil {
				return err
			}
			if known {
				entries = append(entries, entry)
			}
		}
	}
	re.state.SetRelated(entries)
	return nil
}

// locateFormer returns the locations of related objects at the last sync of api-syncagent. If names of copies on the service cluster
// depend on the object in the workspace, it uses the version of that object that api-syncagent has synced.
func (re *reconciliation) locatePrevious(ctx context.Context, resource *RelatedResource, found *unstructured.Unstructured, previous *state.Previous) ([]related.Pair, error) {
	if previous == nil || resource.Spec.Origin != syncagentv1alpha1.RelatedResourceOriginKcp || !selectsBy(resource.Spec.Object) {
		return re.locatePairs(ctx, resource, found)
	}
	current := re.source
	defer func() { re.source = current }()
	re.source = overwrite(current, contentOf(previous.Primary), metadata{})
	return re.locatePairs(ctx, resource, found)
}

func selectsBy(object syncagentv1alpha1.RelatedResourceObject) bool {
	return object.Selector != nil || object.Namespace != nil && object.Namespace.Selector != nil
}

// takeOverCopy completes an entry, and reports whether the records of api-syncagent show that it has created the copy.
func (re *reconciliation) takeOverCopy(ctx context.Context, resource *RelatedResource, entry *state.Related, previous *state.Previous) (bool, error) {
	origin := previous.Find(resource.Origin.GroupVersionKind.GroupKind(), keyOf(entry.Origin))
	if origin == nil && !re.isAnnotated(*entry) {
		return false, nil
	}
	entry.Previous = true
	if re.confine(relation{Related: *entry, resource: resource}) != nil {
		return true, nil // an object there may belong to another owner; only the finalizer is removed
	}
	_, to := re.sides(entry.Side)
	copied, err := to.get(ctx, resource.Copy, keyOf(entry.Copy))
	switch {
	case isTransient(err):
		return false, err
	case err != nil || copied == nil:
		// The copy does not exist, but the origin may have a finalizer that must be removed.
		return err == nil && entry.Side == syncagentv1alpha1.RelatedResourceOriginKcp, nil
	}
	entry.CopyUID = copied.GetUID()
	if origin == nil {
		return true, nil
	}
	content, err := convert(contentOf(origin), resource.Origin.GroupVersionKind.GroupKind(), resource.Copy.GroupVersionKind.GroupKind())
	if err != nil {
		return true, nil // a server has refused the content
	}
	return true, re.state.SetLast(entry.Key(), content)
}

// isAnnotated reports whether annotations of the primary object name a copy in the workspace.
func (re *reconciliation) isAnnotated(entry state.Related) bool {
	if entry.Side != syncagentv1alpha1.RelatedResourceOriginService {
		return false
	}
	apiVersion, kind := resourceOf(entry.Origin).ToAPIVersionAndKind()
	for key, value := range re.source.GetAnnotations() {
		name, isRelated := strings.CutPrefix(key, publication.AnnotationRelatedPrefix)
		var named relatedAnnotation
		if !isRelated || name[:max(0, strings.LastIndexByte(name, '.'))] != entry.Identifier || json.Unmarshal([]byte(value), &named) != nil {
			continue
		}
		if (types.NamespacedName{Namespace: named.Namespace, Name: named.Name}) == keyOf(entry.Copy) && named.APIVersion == apiVersion && named.Kind == kind {
			return true
		}
	}
	return false
}
