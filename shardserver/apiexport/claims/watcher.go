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
	// settling is how long an object may have wrong labels before the watcher sees to it. Mostly the labeler, or the
	// next write, is faster.
	settling = 2 * time.Second
	// attempts is how often an object is tried that cannot be written. After that its next event is waited for.
	attempts = 10
)

// Watcher finds objects whose labels are wrong although every write passes admission: those that were written while a
// claim came or went, or while nothing of the shard ran that could have taken a label off. It is told of every object
// that is stored (package lifecycle/follow), of all of them when it starts, and remembers only what it has to touch.
type Watcher struct {
	labeler *labeler
	queue   workqueue.TypedRateLimitingInterface[suspect]
}

// suspect is an object that had wrong labels.
type suspect struct {
	cluster  logicalcluster.Name
	resource schema.GroupResource
	target
}

// NewWatcher returns a watcher for one life of its Run.
func NewWatcher(cfg Config) *Watcher {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[suspect](time.Second, time.Minute)
	return &Watcher{
		labeler: newLabeler(cfg),
		queue:   workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[suspect]{Name: "permission-claims-watcher"}),
	}
}

// Listing implements follow.Listener.
func (w *Watcher) Listing(*storage.Resource) {}

// Listed implements follow.Listener.
func (w *Watcher) Listed(*storage.Resource) {}

// Dropped implements follow.Listener.
func (w *Watcher) Dropped(*storage.Resource) {}

// Observe implements follow.Listener.
func (w *Watcher) Observe(resource *storage.Resource, event watch.EventType, object metav1.Object) {
	cluster, gr := logicalcluster.Of(object), resource.GVR.GroupResource()
	if event == watch.Deleted || !w.labeler.cfg.Index.concerns(cluster, gr, object.GetLabels()) {
		return
	}
	if wrong, err := w.labeler.isWrong(logicalcluster.With(context.Background(), cluster), gr, object); wrong && err == nil {
		w.queue.AddAfter(suspect{cluster, gr, target{object.GetNamespace(), object.GetName()}}, settling)
	}
}

// Run sees to the objects until the context ends.
func (w *Watcher) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, w.queue.ShutDown)
	defer stop()
	var group sync.WaitGroup
	for range touching {
		group.Go(func() {
			for w.next(ctx) {
			}
		})
	}
	group.Wait()
}

func (w *Watcher) next(ctx context.Context) bool {
	one, shutdown := w.queue.Get()
	if shutdown {
		return false
	}
	defer w.queue.Done(one)
	err := w.see(logicalcluster.With(ctx, one.cluster), one)
	switch {
	case err == nil || ctx.Err() != nil:
		w.queue.Forget(one)
	case w.queue.NumRequeues(one) < attempts:
		w.queue.AddRateLimited(one)
	default:
		w.queue.Forget(one)
		klog.FromContext(ctx).Error(err, "An object keeps wrong labels of claims", "cluster", one.cluster, "resource", one.resource, "namespace", one.namespace, "name", one.name)
	}
	return true
}

// see touches one object if its labels are still wrong.
func (w *Watcher) see(ctx context.Context, one suspect) error {
	if going, err := w.labeler.isGoing(ctx); going || err != nil {
		return err
	}
	resource, err := w.labeler.cfg.Registry.For(ctx, one.resource)
	if err != nil || resource == nil {
		return err // what is not served cannot be written, and nobody is shown it
	}
	scoped := request.WithRequestInfo(ctx, &request.RequestInfo{APIGroup: one.resource.Group, Resource: one.resource.Resource})
	found, err := resource.Store.Get(request.WithNamespace(scoped, one.namespace), one.name, &metav1.GetOptions{ResourceVersion: "0"})
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
	wrong, err := w.labeler.isWrong(ctx, one.resource, object)
	if !wrong || err != nil {
		return err
	}
	if err := touch(ctx, w.labeler.cfg.Objects, resource.GVR, one.target); err != nil {
		return fmt.Errorf("labelling: %w", err)
	}
	return nil
}

// isWrong tells whether an object of the context's logical cluster has other labels of claims than it should.
func (l *labeler) isWrong(ctx context.Context, gr schema.GroupResource, object metav1.Object) (bool, error) {
	wanted, err := l.cfg.Index.Labels(ctx, gr, object.GetLabels())
	return err == nil && !Right(object.GetLabels(), wanted), err
}

// isGoing tells whether the logical cluster and all that is in it are being deleted, so that nobody has to touch it.
func (l *labeler) isGoing(ctx context.Context) (bool, error) {
	cluster, err := l.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && cluster.DeletionTimestamp != nil, err
}
