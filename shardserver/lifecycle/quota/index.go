package quota

import (
	"context"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// definingResources are the resources whose objects add served resources, which a quota may limit before they are
// served.
var definingResources = map[schema.GroupResource]bool{
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}: true,
	{Group: "apis.kcp.io", Resource: "apibindings"}:                        true,
}

// index maps events to the quotas that they affect. It has entries only for logical clusters with quotas.
type index struct {
	// enqueue enqueues a quota after a delay.
	enqueue func(controller.Request, time.Duration)

	mu       sync.Mutex
	clusters map[logicalcluster.Name]map[controller.Request]*limits
}

// limits are the object counts that a quota limits.
type limits struct {
	wholeCluster bool
	hard         core.ResourceList
	resources    map[schema.GroupResource]bool
}

func newIndex(enqueue func(controller.Request, time.Duration)) *index {
	return &index{enqueue: enqueue, clusters: map[logicalcluster.Name]map[controller.Request]*limits{}}
}

// EventHandler returns the handler of one storage.
func (i *index) EventHandler(resource *storage.Resource) informer.EventHandler[metav1.Object] {
	listed := false
	handler := func(event watch.EventType) func(context.Context, metav1.Object) error {
		return func(_ context.Context, object metav1.Object) error { i.handle(resource, event, object); return nil }
	}
	return informer.EventHandler[metav1.Object]{
		OnReplace: func(_ context.Context, objects []metav1.Object, _ string) error {
			for _, object := range objects {
				i.handle(resource, watch.Added, object)
			}
			if listed { // deletions may have been missed
				i.enqueueAll()
			}
			listed = true
			return nil
		},
		OnAdd:    handler(watch.Added),
		OnUpdate: handler(watch.Modified),
		OnDelete: handler(watch.Deleted),
		OnStop:   func() { i.removeResource(resource) },
	}
}

func (i *index) handle(resource *storage.Resource, event watch.EventType, object metav1.Object) {
	if quota, ok := object.(*core.ResourceQuota); ok {
		i.updateQuota(event, quota)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	quotas := i.clusters[logicalcluster.Of(object)]
	if len(quotas) == 0 {
		return
	}
	switch name := resource.GVR.GroupResource(); {
	case definingResources[name]:
		for key := range quotas {
			i.enqueue(key, enqueueDelay)
		}
	case event == watch.Deleted:
		for key, limits := range quotas {
			if limits.resources[name] && (limits.wholeCluster || key.Namespace == object.GetNamespace()) {
				i.enqueue(key, enqueueDelay)
			}
		}
	}
}

func (i *index) enqueueAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, quotas := range i.clusters {
		for key := range quotas {
			i.enqueue(key, enqueueDelay)
		}
	}
}

func (i *index) removeResource(resource *storage.Resource) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if resource.GVR.GroupResource() == Quotas {
		clear(i.clusters)
	}
}

// updateQuota updates the index. It enqueues a quota that is new, has other limits than before, or whose status was
// written by another client, so that it does not repeat the limits. A charge of admission changes none of these.
func (i *index) updateQuota(event watch.EventType, quota *core.ResourceQuota) {
	key := controller.Request{ClusterName: logicalcluster.Of(quota), Namespace: quota.Namespace, Name: quota.Name}
	if event == watch.Deleted {
		i.removeQuota(key, i.getLimits(key))
		return
	}
	current := limitsOf(quota)
	i.mu.Lock()
	defer i.mu.Unlock()
	known := i.clusters[key.ClusterName][key]
	if known == nil && i.clusters[key.ClusterName] == nil {
		i.clusters[key.ClusterName] = map[controller.Request]*limits{}
	}
	i.clusters[key.ClusterName][key] = current
	changed := known == nil || known.wholeCluster != current.wholeCluster || !apiequality.Semantic.DeepEqual(known.hard, current.hard)
	if event == watch.Added || changed || !apiequality.Semantic.DeepEqual(quota.Status.Hard, quota.Spec.Hard) {
		i.enqueue(key, 0)
	}
}

// getLimits returns the limits of a quota as of the last event, or nil.
func (i *index) getLimits(key controller.Request) *limits {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.clusters[key.ClusterName][key]
}

// removeQuota removes a quota, unless an event has updated it since known was read: then a quota of that name exists
// again.
func (i *index) removeQuota(key controller.Request, known *limits) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.clusters[key.ClusterName][key] != known {
		return
	}
	delete(i.clusters[key.ClusterName], key)
	if len(i.clusters[key.ClusterName]) == 0 {
		delete(i.clusters, key.ClusterName)
	}
}

func limitsOf(quota *core.ResourceQuota) *limits {
	l := &limits{wholeCluster: IsClusterScoped(quota), hard: quota.Spec.Hard, resources: map[schema.GroupResource]bool{}}
	for name := range quota.Spec.Hard {
		if resource, ok := CountedResource(name); ok {
			l.resources[resource] = true
		}
	}
	return l
}
