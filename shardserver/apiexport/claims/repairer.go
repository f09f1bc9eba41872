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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// repairDelay is how long an object may have wrong labels before the watcher sees to it. Mostly the labeler, or the
	// next write, is faster.
	repairDelay = 2 * time.Second
	// maxAttempts is how often an object is tried that cannot be written. After that its next event is waited for.
	maxAttempts = 10
)

// Repairer finds objects whose labels are wrong although every write passes admission: those that were written while a
// claim came or went, or while nothing of the shard ran that could have taken a label off. It is told of every object
// that is stored (package lifecycle/follow), of all of them when it starts, and remembers only what it has to touch.
type Repairer struct {
	labeler *labeler
	queue   workqueue.TypedRateLimitingInterface[queueItem]
}

// queueItem is an object that had wrong labels.
type queueItem struct {
	cluster  logicalcluster.Name
	resource schema.GroupResource
	target
}

// NewRepairer returns a watcher for one life of its Run.
func NewRepairer(cfg Config) *Repairer {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[queueItem](time.Second, time.Minute)
	return &Repairer{
		labeler: newLabeler(cfg),
		queue:   workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[queueItem]{Name: "permission-claims-watcher"}),
	}
}

// Listing implements follow.Listener.
func (w *Repairer) Listing(*storage.Resource) {}

// Listed implements follow.Listener.
func (w *Repairer) Listed(*storage.Resource) {}

// Dropped implements follow.Listener.
func (w *Repairer) Dropped(*storage.Resource) {}

// Observe implements follow.Listener.
func (w *Repairer) Observe(resource *storage.Resource, event watch.EventType, object metav1.Object) {
	cluster, gr := logicalcluster.Of(object), resource.GVR.GroupResource()
	if event == watch.Deleted || !w.labeler.cfg.Index.mayNeedRelabeling(cluster, gr, object.GetLabels()) {
		return
	}
	if outdated, err := w.labeler.labelsOutdated(logicalcluster.With(context.Background(), cluster), gr, object); outdated && err == nil {
		w.queue.AddAfter(queueItem{cluster, gr, target{object.GetNamespace(), object.GetName()}}, repairDelay)
	}
}

// Run sees to the objects until the context ends.
func (w *Repairer) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, w.queue.ShutDown)
	defer stop()
	var group sync.WaitGroup
	for range touchConcurrency {
		group.Go(func() {
			for w.processNext(ctx) {
			}
		})
	}
	group.Wait()
}

func (w *Repairer) processNext(ctx context.Context) bool {
	item, shutdown := w.queue.Get()
	if shutdown {
		return false
	}
	defer w.queue.Done(item)
	err := w.repair(logicalcluster.With(ctx, item.cluster), item)
	switch {
	case err == nil || ctx.Err() != nil:
		w.queue.Forget(item)
	case w.queue.NumRequeues(item) < maxAttempts:
		w.queue.AddRateLimited(item)
	default:
		w.queue.Forget(item)
		klog.FromContext(ctx).Error(err, "An object keeps wrong labels of claims", "cluster", item.cluster, "resource", item.resource, "namespace", item.namespace, "name", item.name)
	}
	return true
}

// repair touches one object if its labels are still wrong.
func (w *Repairer) repair(ctx context.Context, item queueItem) error {
	if deleting, err := w.labeler.isClusterDeleting(ctx); deleting || err != nil {
		return err
	}
	resource, err := w.labeler.cfg.Registry.For(ctx, item.resource)
	if err != nil || resource == nil {
		return err // what is not served cannot be written, and nobody is shown it
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
	outdated, err := w.labeler.labelsOutdated(ctx, item.resource, object)
	if !outdated || err != nil {
		return err
	}
	if err := touch(ctx, w.labeler.cfg.Objects, resource.GVR, item.target); err != nil {
		return fmt.Errorf("labelling: %w", err)
	}
	return nil
}

// labelsOutdated tells whether an object of the context's logical cluster has other labels of claims than it should.
func (l *labeler) labelsOutdated(ctx context.Context, gr schema.GroupResource, object metav1.Object) (bool, error) {
	wanted, err := l.cfg.Index.Labels(ctx, gr, object.GetLabels())
	return err == nil && !LabelsMatch(object.GetLabels(), wanted), err
}

// isClusterDeleting tells whether the logical cluster and all that is in it are being deleted, so that nobody has to touch it.
func (l *labeler) isClusterDeleting(ctx context.Context) (bool, error) {
	cluster, err := l.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && cluster.DeletionTimestamp != nil, err
}
