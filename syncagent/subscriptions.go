package syncagent

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/endpoints"
	"github.com/atoll-dev/atoll/internal/informer"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/related"
)

// subscribeService has changes of related objects on the service cluster sync the primary objects that they may belong to.
func (s *synchronization) subscribeService() (unsubscribe func()) {
	var all []func()
	for _, spec := range s.publication.Spec.Related {
		if spec.Watch == nil || spec.Origin != syncagentv1alpha1.RelatedResourceOriginService {
			continue
		}
		all = append(all, s.serviceWatches.subscribe(related.OriginResource(spec), selectorOf(spec.Watch), &subscriber{
			onChange: func(object *metav1.PartialObjectMetadata) {
				s.enqueueCopies(s.ownersAmong(s.copies.Store, s.serviceResource, spec, object))
			},
			resync: func() { s.eachEndpoint((*workspaces).enqueueAll) },
		}))
	}
	return func() { callAll(all) }
}

// subscribeWorkspaces is subscribeService for the workspaces behind an endpoint.
func (w *workspaces) subscribeWorkspaces(found *served) (unsubscribe func()) {
	var all []func()
	for _, r := range found.related {
		if r.Spec.Watch == nil || r.Origin.Resource == "" || r.Spec.Origin != syncagentv1alpha1.RelatedResourceOriginKcp {
			continue
		}
		all = append(all, found.endpoint.watches.subscribe(r.Origin.GroupVersionResource(), selectorOf(r.Spec.Watch), &subscriber{
			onChange: func(object *metav1.PartialObjectMetadata) {
				for _, key := range w.ownersAmong(w.store(), w.workspaceResource, r.Spec, object) {
					w.enqueue(key)
				}
			},
			resync: w.enqueueAll,
		}))
	}
	return func() { callAll(all) }
}

func callAll(functions []func()) {
	for _, f := range functions {
		f()
	}
}

// noObjects is a label selector that matches none.
const noObjects = publication.LabelAgentName + ",!" + publication.LabelAgentName

// selectorOf returns the label selector of a watch as text, empty for all objects. One that is invalid selects nothing; validation
// reports it.
func selectorOf(watch *syncagentv1alpha1.RelatedResourceWatch) string {
	if watch.BySelector == nil {
		return ""
	}
	selector, err := metav1.LabelSelectorAsSelector(watch.BySelector)
	if err != nil {
		return noObjects
	}
	return selector.String()
}

func (s *synchronization) enqueueCopies(keys []informer.Key) {
	for _, key := range keys {
		s.enqueueIndex(s.copies.IndexOf(key))
	}
}

// ownersAmong returns the keys of the objects of a store that a related object on the same side may belong to.
func (s *synchronization) ownersAmong(store *informer.Store, resource endpoints.Resource, spec syncagentv1alpha1.RelatedResourceSpec, object *metav1.PartialObjectMetadata) []informer.Key {
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
func owners(resource endpoints.Resource, cluster string, object *metav1.PartialObjectMetadata) []informer.Key {
	namespace := ""
	if resource.Namespaced {
		namespace = object.Namespace
	}
	var keys []informer.Key
	for _, owner := range object.OwnerReferences {
		group, err := schema.ParseGroupVersion(owner.APIVersion)
		if err == nil && group.Group == resource.Group && owner.Kind == resource.Kind {
			keys = append(keys, informer.Key{Cluster: cluster, Namespace: namespace, Name: owner.Name})
		}
	}
	return keys
}
