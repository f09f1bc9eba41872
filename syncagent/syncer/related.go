package syncer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/related"
	"github.com/atoll-dev/atoll/syncagent/state"
)

// relation is a related object that the primary object references, or has referenced.
type relation struct {
	state.Related
	// resource is nil if the publication does not contain the entry any more.
	resource *RelatedResource
	// referenced means that the primary object references it.
	referenced bool
	// refused means that the agent must not write to the location of the copy. An existing copy is not changed.
	refused bool
	// origin is nil if it does not exist.
	origin *unstructured.Unstructured
	// unknown means that the origin could not be read.
	unknown bool
}

func (r relation) presence() presence {
	switch {
	case r.origin == nil:
		return originMissing
	case r.origin.GetDeletionTimestamp() != nil:
		return originTerminating
	}
	return originLive
}

// relatedReconciliation is the part of a reconciliation that syncs related objects.
type relatedReconciliation struct {
	primary *reconciliation
	errs    []error
	// unlocated are the identifiers whose objects could not be located, incomplete those with an object that could not be synced.
	unlocated, incomplete map[string]bool
	synced                []relation
	wait                  bool
}

func newRelatedReconciliation(p *reconciliation) *relatedReconciliation {
	return &relatedReconciliation{primary: p, unlocated: map[string]bool{}, incomplete: map[string]bool{}}
}

func (r *relatedReconciliation) failed(identifier string, err error) {
	r.incomplete[identifier] = true
	r.errs = append(r.errs, fmt.Errorf("related object %q: %w", identifier, err))
}

// syncRelated syncs the related objects of a primary object that is not being deleted. One that fails does not prevent the sync of the
// others.
func (re *reconciliation) syncRelated(ctx context.Context, copied *unstructured.Unstructured) (Result, error) {
	recorded, _ := re.state.Related()
	if len(re.config.Related) == 0 && len(recorded) == 0 {
		return Result{}, nil
	}
	re.home = copied.GetNamespace()
	r := newRelatedReconciliation(re)
	relations := r.observe(ctx, r.locate(ctx, copied), recorded)
	if err := r.recordRelations(ctx, relations); err != nil {
		return Result{}, err
	}
	r.apply(ctx, relations)
	if err := re.saveState(ctx); err != nil {
		r.errs = append(r.errs, err)
	}
	if err := re.annotateRelated(ctx, r.synced, r.incomplete); err != nil {
		r.errs = append(r.errs, err)
	}
	result := Result{}
	if r.wait {
		result.RequeueAfter = pollDelay
	}
	return result, errors.Join(r.errs...)
}

// locate returns the related objects that the primary object references.
func (r *relatedReconciliation) locate(ctx context.Context, copied *unstructured.Unstructured) []relation {
	var located []relation
	taken := map[state.Object]bool{}
	for i := range r.primary.config.Related {
		resource := &r.primary.config.Related[i]
		pairs, err := r.primary.locatePairs(ctx, resource, copied)
		if err != nil {
			r.failed(resource.Spec.Identifier, err)
			r.unlocated[resource.Spec.Identifier] = true
			continue
		}
		for _, pair := range pairs {
			entry := newRelated(resource, pair)
			if err := r.primary.guardOrigin(resource, pair); err != nil {
				r.failed(entry.Identifier, err)
				continue
			}
			if taken[entry.Copy] {
				r.failed(entry.Identifier, &OwnedError{describeCopy(entry), "is the copy of another related object of the same object"})
				continue
			}
			taken[entry.Copy] = true
			found := relation{Related: entry, resource: resource, referenced: true}
			if err := r.primary.confine(found); err != nil {
				r.failed(entry.Identifier, err)
				found.refused = true
			}
			located = append(located, found)
		}
	}
	return located
}

func (re *reconciliation) locatePairs(ctx context.Context, resource *RelatedResource, copied *unstructured.Unstructured) ([]related.Pair, error) {
	if resource.Unresolved != nil {
		return nil, resource.Unresolved
	}
	origin, _ := re.sides(resource.Spec.Origin)
	return related.Locate(ctx, resource.Spec, related.Input{
		Workspace: re.source, Service: copied, ClusterName: re.request.Cluster.String(), ClusterPath: re.path,
		OriginClusterScoped: !resource.Origin.Namespaced, CopyClusterScoped: !resource.Copy.Namespaced,
		List: func(ctx context.Context, namespace string, selector labels.Selector) ([]unstructured.Unstructured, error) {
			return origin.list(ctx, resource.Origin, namespace, selector)
		},
		ListNamespaces: func(ctx context.Context, selector labels.Selector) ([]unstructured.Unstructured, error) {
			return origin.list(ctx, workspaces.Namespaces, "", selector)
		},
	})
}

// sides returns the side of the origin and the side of the copy.
func (re *reconciliation) sides(origin syncagentv1alpha1.RelatedResourceOrigin) (from, to side) {
	if origin == syncagentv1alpha1.RelatedResourceOriginKcp {
		return re.workspace(), re.service()
	}
	return re.service(), re.workspace()
}

func newRelated(resource *RelatedResource, pair related.Pair) state.Related {
	return state.Related{
		Identifier: resource.Spec.Identifier, Side: resource.Spec.Origin, Policy: cleanupPolicy(resource.Spec),
		Origin: newObjectReference(resource.Origin, pair.Origin), Copy: newObjectReference(resource.Copy, pair.Copy),
	}
}

func newObjectReference(resource workspaces.Resource, key types.NamespacedName) state.Object {
	if !resource.Namespaced {
		key.Namespace = ""
	}
	return state.Object{
		Group: resource.Group, Version: resource.Version, Kind: resource.Kind, Resource: resource.Resource,
		Namespace: key.Namespace, Name: key.Name,
	}
}

func describeCopy(entry state.Related) string {
	return fmt.Sprintf("%s %s", entry.Copy.Kind, keyOf(entry.Copy))
}

func resourceOf(object state.Object) workspaces.Resource {
	return workspaces.Resource{
		GroupVersionKind: schema.GroupVersionKind{Group: object.Group, Version: object.Version, Kind: object.Kind},
		Resource:         object.Resource, Namespaced: object.Namespace != "",
	}
}

func keyOf(object state.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
}

// observe reads the origins of the located and of the recorded related objects.
func (r *relatedReconciliation) observe(ctx context.Context, located []relation, recorded []state.Related) []relation {
	relations, known := []relation{}, map[string]bool{}
	add := func(relation relation) {
		from, _ := r.primary.sides(relation.Side)
		origin, err := from.get(ctx, resourceOf(relation.Origin), keyOf(relation.Origin))
		if err != nil {
			r.failed(relation.Identifier, err)
		}
		relation.origin, relation.unknown = origin, err != nil
		known[relation.Key()] = true
		relations = append(relations, relation)
	}
	for _, relation := range located {
		add(relation)
	}
	for _, entry := range recorded {
		if !known[entry.Key()] {
			add(relation{Related: entry})
		}
	}
	return relations
}

// recordRelations records related objects before the reconciliation writes a finalizer or a copy of them.
func (r *relatedReconciliation) recordRelations(ctx context.Context, relations []relation) error {
	recorded, _ := r.primary.state.Related()
	entries := slices.Clone(recorded)
	for i := range relations {
		relation := &relations[i]
		at := slices.IndexFunc(entries, func(e state.Related) bool { return e.Key() == relation.Key() })
		switch {
		case at >= 0 && relation.referenced:
			relation.CopyUID, relation.Previous = entries[at].CopyUID, entries[at].Previous
			entries[at] = relation.Related // the policy may have changed
		case at < 0 && (relation.presence() == originLive && !relation.refused || r.primary.holds(*relation)):
			entries = append(entries, relation.Related)
		}
	}
	r.primary.state.SetRelated(entries)
	return r.primary.saveState(ctx)
}

// apply syncs, cleans up or keeps each related object. It does not remove the record of one that may still have a copy or a finalizer.
func (r *relatedReconciliation) apply(ctx context.Context, relations []relation) {
	recorded, _ := r.primary.state.Related()
	for _, relation := range relations {
		isRecorded := slices.ContainsFunc(recorded, func(e state.Related) bool { return e.Key() == relation.Key() })
		if !isRecorded || relation.unknown {
			continue
		}
		switch actionFor(relation.Related, relation.referenced || r.unlocated[relation.Identifier], relation.presence()) {
		case actionSync:
			r.sync(ctx, relation)
		case actionCleanUp:
			cleaned, err := r.primary.cleanUp(ctx, relation.Related)
			if err != nil {
				r.failed(relation.Identifier, err)
			}
			r.wait = r.wait || err == nil && !cleaned
		case actionKeep:
			r.removeNeedless(ctx, relation)
		}
	}
}

// removeNeedless removes the record of an object that the primary object does not reference any more and that needs no action: its copy
// is kept in any case, or does not exist. Otherwise the record would grow with each object that has ever been referenced.
func (r *relatedReconciliation) removeNeedless(ctx context.Context, relation relation) {
	if relation.referenced || r.unlocated[relation.Identifier] {
		return
	}
	if cleansUpWithPrimary(relation.Related) {
		_, to := r.primary.sides(relation.Side)
		copied, err := to.get(ctx, resourceOf(relation.Copy), keyOf(relation.Copy))
		if err != nil {
			r.failed(relation.Identifier, err)
			return
		}
		if copied != nil && (ownersOf(copied, r.primary.ownerKey(), "").own || r.primary.state.HasCopy(relation.Key(), copied.GetUID())) {
			return
		}
	}
	r.primary.state.ForgetRelated(relation.Key())
	r.primary.state.Forget(relation.Key() + statusKeySuffix)
}

// holds reports whether an unrecorded origin has a finalizer of the agent, because the record is missing.
func (re *reconciliation) holds(r relation) bool {
	return r.Side == syncagentv1alpha1.RelatedResourceOriginKcp && r.origin != nil &&
		len(re.releasedFinalizers(r.origin.GetFinalizers(), r.Related)) < len(r.origin.GetFinalizers())
}

func (r *relatedReconciliation) sync(ctx context.Context, relation relation) {
	if relation.resource == nil || relation.refused {
		return
	}
	wait, err := r.primary.syncOne(ctx, relation)
	if err != nil {
		r.failed(relation.Identifier, err)
		return
	}
	r.wait = r.wait || wait
	r.synced = append(r.synced, relation)
}
