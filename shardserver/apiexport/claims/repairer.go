package claims

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// repairDelay is how long an object may have outdated labels before it is repaired. Usually the labeler or the next
	// write is faster.
	repairDelay = 2 * time.Second
	// maxAttempts is the number of patches of an object that fails, until its next event.
	maxAttempts = 10
)

// Repairer relabels objects with outdated claim labels that neither admission nor the labeler caught: those written
// while a claim was added or removed, or while the shard was down. It observes all stored objects and
// queues only outdated ones.
type Repairer struct {
	labeler *labeler
	queue   workqueue.TypedRateLimitingInterface[queueItem]
}

// queueItem is an object with outdated labels.
type queueItem struct {
	cluster  logicalcluster.Name
	resource schema.GroupResource
	target
}

// NewRepairer returns a Repairer whose Run may be called once.
func NewRepairer(cfg Config) *Repairer {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[queueItem](time.Second, time.Minute)
	return &Repairer{
		labeler: newLabeler(cfg),
		queue:   workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[queueItem]{Name: "permission-claims-watcher"}),
	}
}

// EventHandler returns the handler of one storage.
func (r *Repairer) EventHandler(resource *storage.Resource) informer.EventHandler[metav1.Object] {
	gr := resource.GVR.GroupResource()
	update := func(ctx context.Context, object metav1.Object) error { r.enqueueOutdated(ctx, gr, object); return nil }
	return informer.EventHandler[metav1.Object]{OnReplace: informer.ForEach(update), OnAdd: update, OnUpdate: update}
}

func (r *Repairer) enqueueOutdated(ctx context.Context, gr schema.GroupResource, object metav1.Object) {
	cluster := logicalcluster.Of(object)
	if !r.labeler.cfg.Index.mayNeedRelabeling(cluster, gr, object.GetLabels()) {
		return
	}
	if outdated, err := r.labeler.areLabelsOutdated(logicalcluster.With(ctx, cluster), gr, object); outdated && err == nil {
		r.queue.AddAfter(queueItem{cluster, gr, target{object.GetNamespace(), object.GetName()}}, repairDelay)
	}
}

// Run processes the queue until the context is done.
func (r *Repairer) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, r.queue.ShutDown)
	defer stop()
	var group sync.WaitGroup
	for range touchConcurrency {
		group.Go(func() {
			for r.processNext(ctx) {
			}
		})
	}
	group.Wait()
}

func (r *Repairer) processNext(ctx context.Context) bool {
	item, shutdown := r.queue.Get()
	if shutdown {
		return false
	}
	defer r.queue.Done(item)
	err := r.repair(logicalcluster.With(ctx, item.cluster), item)
	switch {
	case err == nil || ctx.Err() != nil:
		r.queue.Forget(item)
	case r.queue.NumRequeues(item) < maxAttempts:
		r.queue.AddRateLimited(item)
	default:
		r.queue.Forget(item)
		klog.FromContext(ctx).Error(err, "Failed to update the claim labels of an object", "cluster", item.cluster, "resource", item.resource, "namespace", item.namespace, "name", item.name)
	}
	return true
}

// repair touches an object if its labels are still outdated.
func (r *Repairer) repair(ctx context.Context, item queueItem) error {
	if deleting, err := r.labeler.isClusterDeleting(ctx); deleting || err != nil {
		return err
	}
	resource, err := r.labeler.cfg.Registry.Resolve(ctx, item.resource)
	if err != nil || resource == nil {
		return err // an unserved resource is neither writable nor visible
	}
	scoped := request.WithRequestInfo(ctx, &request.RequestInfo{APIGroup: item.resource.Group, Resource: item.resource.Resource})
	found, err := resource.Store.Get(request.WithNamespace(scoped, item.namespace), item.name, &metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	object, err := meta.Accessor(found)
	if err != nil {
		return err
	}
	outdated, err := r.labeler.areLabelsOutdated(ctx, item.resource, object)
	if !outdated || err != nil {
		return err
	}
	if err := touch(ctx, r.labeler.cfg.Objects, resource.GVR, item.target); err != nil {
		return fmt.Errorf("labelling: %w", err)
	}
	return nil
}

// areLabelsOutdated reports whether an object of the context's logical cluster has outdated claim labels.
func (l *labeler) areLabelsOutdated(ctx context.Context, gr schema.GroupResource, object metav1.Object) (bool, error) {
	desired, err := l.cfg.Index.Labels(ctx, gr, object.GetLabels())
	return err == nil && !LabelsMatch(object.GetLabels(), desired), err
}

// isClusterDeleting reports whether the context's logical cluster is being deleted, so that labels do not matter.
func (l *labeler) isClusterDeleting(ctx context.Context) (bool, error) {
	cluster, err := l.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && cluster.DeletionTimestamp != nil, err
}
