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
func (p *reconciliation) takeOver(ctx context.Context, found *unstructured.Unstructured) error {
	if p.state.Claimed() || !slices.Contains(p.source.GetFinalizers(), publication.Finalizer) {
		return nil // no agent has synced it before
	}
	previous, err := p.Syncer.state.LoadPrevious(ctx, p.request.Source().Labels(), p.request.NamespacedName,
		p.config.WorkspaceResource.GroupKind(), p.config.ServiceResource.GroupKind())
	if err != nil || previous == nil && !isPreviousCopy(found) {
		return err
	}
	if previous != nil {
		p.state.SetPrevious(previous)
	}
	if found != nil {
		if err := p.takeOverObjects(ctx, found, previous); err != nil {
			return err
		}
	}
	klog.FromContext(ctx).Info("An object of api-syncagent has been taken over", "state", previous != nil)
	return p.saveState(ctx)
}

// isPreviousCopy reports whether api-syncagent has created a copy: such a copy does not name its resource.
func isPreviousCopy(copied *unstructured.Unstructured) bool {
	return copied != nil && copied.GetLabels()[publication.LabelRemoteResource] == "" && copied.GetAnnotations()[publication.AnnotationRemoteResource] == ""
}

// takeOverObjects records the copy of the primary object and the copies of related objects. It accepts nil if the state of api-syncagent
// does not exist.
func (p *reconciliation) takeOverObjects(ctx context.Context, found *unstructured.Unstructured, previous *state.Previous) error {
	p.home = found.GetNamespace()
	p.state.SetCopy(client.ObjectKeyFromObject(found))
	p.state.SetCopyUID(found.GetUID())
	if previous != nil {
		if err := p.state.SetLast(p.primaryKey(), contentOf(previous.Primary)); err != nil {
			return err
		}
	}
	return p.takeOverRelated(ctx, found, previous)
}

// takeOverRelated records the copies of related objects that api-syncagent has created.
func (p *reconciliation) takeOverRelated(ctx context.Context, found *unstructured.Unstructured, previous *state.Previous) error {
	switch err := p.readPath(ctx); {
	case isTransient(err):
		return err
	case err != nil: // a deletion must not wait for it
		klog.FromContext(ctx).Info("The path of the workspace is not known for related objects of api-syncagent", "err", err)
	}
	var entries []state.Related
	for i := range p.config.Related {
		resource := &p.config.Related[i]
		pairs, err := p.locatePrevious(ctx, resource, found, previous)
		switch {
		case isTransient(err):
			return err
		case err != nil: // api-syncagent could not locate them either
			klog.FromContext(ctx).Info("Related objects of api-syncagent cannot be located", "identifier", resource.Spec.Identifier, "err", err)
			continue
		}
		for _, pair := range pairs {
			entry := newRelated(resource, pair)
			known, err := p.takeOverCopy(ctx, resource, &entry, previous)
			if err != nil {
				return err
			}
			if known {
				entries = append(entries, entry)
			}
		}
	}
	p.state.SetRelated(entries)
	return nil
}

// locateFormer returns the locations of related objects at the last sync of api-syncagent. If names of copies on the service cluster
// depend on the object in the workspace, it uses the version of that object that api-syncagent has synced.
func (p *reconciliation) locatePrevious(ctx context.Context, resource *RelatedResource, found *unstructured.Unstructured, previous *state.Previous) ([]related.Pair, error) {
	if previous == nil || resource.Spec.Origin != syncagentv1alpha1.RelatedResourceOriginKcp || !selectsBy(resource.Spec.Object) {
		return p.locatePairs(ctx, resource, found)
	}
	current := p.source
	defer func() { p.source = current }()
	p.source = overwrite(current, contentOf(previous.Primary), metadata{})
	return p.locatePairs(ctx, resource, found)
}

func selectsBy(object syncagentv1alpha1.RelatedResourceObject) bool {
	return object.Selector != nil || object.Namespace != nil && object.Namespace.Selector != nil
}

// takeOverCopy completes an entry, and reports whether the records of api-syncagent show that it has created the copy.
func (p *reconciliation) takeOverCopy(ctx context.Context, resource *RelatedResource, entry *state.Related, previous *state.Previous) (bool, error) {
	origin := previous.Find(resource.Origin.GroupVersionKind.GroupKind(), keyOf(entry.Origin))
	if origin == nil && !p.isAnnotated(*entry) {
		return false, nil
	}
	entry.Previous = true
	if p.confine(relation{Related: *entry, resource: resource}) != nil {
		return true, nil // an object there may belong to another owner; only the finalizer is removed
	}
	_, to := p.sides(entry.Side)
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
	return true, p.state.SetLast(entry.Key(), content)
}

// isAnnotated reports whether annotations of the primary object name a copy in the workspace.
func (p *reconciliation) isAnnotated(entry state.Related) bool {
	if entry.Side != syncagentv1alpha1.RelatedResourceOriginService {
		return false
	}
	apiVersion, kind := resourceOf(entry.Origin).ToAPIVersionAndKind()
	for key, value := range p.source.GetAnnotations() {
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
