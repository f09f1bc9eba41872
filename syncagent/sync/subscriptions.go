package sync

import (
	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/related"
)

// subscribeService watches related objects on the service cluster. A change enqueues the primary objects that the related object may
// belong to.
func (s *publicationSync) subscribeService() (unsubscribe func()) {
	var all []func()
	for _, spec := range s.publication.Spec.Related {
		if spec.Watch == nil || spec.Origin != syncagentv1alpha1.RelatedResourceOriginService {
			continue
		}
		primaries := selectorOf(spec.Watch)
		all = append(all, s.shared.serviceWatches.Subscribe(related.OriginResource(spec), &workspaces.Subscriber{
			OnChange: func(object *metav1.PartialObjectMetadata) {
				s.enqueueCopies(s.ownersAmong(s.copies.Store, s.serviceResource, spec, object), primaries)
			},
			Resync: func() { s.eachEndpoint((*endpointSync).enqueueAll) },
		}))
	}
	return func() { callAll(all) }
}

// subscribeWorkspaces is subscribeService for the workspaces of an endpoint.
func (e *endpointSync) subscribeWorkspaces(found *served) (unsubscribe func()) {
	var all []func()
	for _, r := range found.related {
		if r.Spec.Watch == nil || r.Origin.Resource == "" || r.Spec.Origin != syncagentv1alpha1.RelatedResourceOriginKcp {
			continue
		}
		primaries := selectorOf(r.Spec.Watch)
		all = append(all, found.endpoint.Watches.Subscribe(r.Origin.GroupVersionResource(), &workspaces.Subscriber{
			OnChange: func(object *metav1.PartialObjectMetadata) {
				store := e.store()
				for _, key := range e.parent.ownersAmong(store, e.parent.workspaceResource, r.Spec, object) {
					if matchesLabels(store.Encoded(key), primaries) {
						e.enqueue(key)
					}
				}
			},
			Resync: e.enqueueAll,
		}))
	}
	return func() { callAll(all) }
}

func callAll(functions []func()) {
	for _, f := range functions {
		f()
	}
}

// selectorOf returns the label selector of the primary objects that a change of a related object may affect. It selects everything if
// owner references decide. An invalid selector selects nothing; validation reports it.
func selectorOf(watch *syncagentv1alpha1.RelatedResourceWatch) labels.Selector {
	if watch.BySelector == nil {
		return labels.Everything()
	}
	selector, err := metav1.LabelSelectorAsSelector(watch.BySelector)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// matchesLabels reports whether a selector selects an encoded object. It decodes the labels only, because a change of one related object
// may affect all primary objects.
func matchesLabels(encoded []byte, selector labels.Selector) bool {
	if selector.Empty() {
		return true
	}
	found := labels.Set{}
	gjson.GetBytes(encoded, "metadata.labels").ForEach(func(name, value gjson.Result) bool {
		found[name.String()] = value.String()
		return true
	})
	return selector.Matches(found)
}

// enqueueCopies enqueues the primary objects of the copies that a selector selects. It matches the labels on either side: a copy may have
// existed before the agent, with labels of its own.
func (s *publicationSync) enqueueCopies(keys []workspaces.Key, primaries labels.Selector) {
	for _, key := range keys {
		index := s.copies.IndexOf(key)
		if matchesLabels(s.copies.Encoded(key), primaries) {
			s.enqueueIndex(index)
			continue
		}
		s.eachEndpoint(func(e *endpointSync) { e.enqueueMatching(index, primaries) })
	}
}

// enqueueMatching enqueues the objects with an index key that a selector selects.
func (e *endpointSync) enqueueMatching(index workspaces.IndexKey, selector labels.Selector) {
	store := e.store()
	if store == nil {
		return
	}
	for _, key := range store.ByIndex(index) {
		if matchesLabels(store.Encoded(key), selector) {
			e.enqueue(key)
		}
	}
}

// ownersAmong returns the keys of the objects of a store that a related object on the same side may belong to.
func (s *publicationSync) ownersAmong(store *workspaces.Store, resource workspaces.Resource, spec syncagentv1alpha1.RelatedResourceSpec, object *metav1.PartialObjectMetadata) []workspaces.Key {
	if object.Labels[publication.LabelObjectState] != "" {
		return nil // otherwise every write of a state would enqueue all primary objects
	}
	cluster := ""
	if store != s.copies.Store {
		cluster = logicalcluster.Of(object).String()
	}
	if spec.Watch.ByOwner != nil {
		return owners(resource, cluster, object)
	}
	if spec.Object.Namespace == nil && resource.Namespaced {
		return store.InNamespace(cluster, object.Namespace)
	}
	return store.InCluster(cluster)
}

// owners returns the keys of the objects of a resource that an object names as its owners.
func owners(resource workspaces.Resource, cluster string, object *metav1.PartialObjectMetadata) []workspaces.Key {
	namespace := ""
	if resource.Namespaced {
		namespace = object.Namespace
	}
	var keys []workspaces.Key
	for _, owner := range object.OwnerReferences {
		group, err := schema.ParseGroupVersion(owner.APIVersion)
		if err == nil && group.Group == resource.Group && owner.Kind == resource.Kind {
			keys = append(keys, workspaces.Key{Cluster: cluster, Namespace: namespace, Name: owner.Name})
		}
	}
	return keys
}
