package quota

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/follow"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	workers = 5
	// recount is how often a quota is counted anew whatever happens.
	recount = 5 * time.Minute
	// settle is how long after a deletion its quotas are counted, so that many deletions make one count.
	settle = 100 * time.Millisecond
	// inFlightAgain is when a quota is counted anew because requests were on their way.
	inFlightAgain = time.Second
	countTimeout  = time.Minute
	retryBase     = 20 * time.Millisecond
	retryMax      = time.Minute
)

// Config is what a Controller needs.
type Config struct {
	Registry   *storage.Registry
	Kubernetes kubernetes.Interface
	// InFlight are the requests that admission let pass in this process. Another replica's are not known: there, an
	// object that is stored in the moment of the count may be missed until the next one.
	InFlight *InFlight
}

// Controller keeps the status of quotas. It is a follow.Listener of all storages.
type Controller struct {
	cfg    Config
	quotas *storage.Reader[*core.ResourceQuota]
	queue  workqueue.TypedRateLimitingInterface[controller.Key]

	*index
}

var _ follow.Listener = &Controller{}

// New returns a controller for one run.
func New(cfg Config) *Controller {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[controller.Key](retryBase, retryMax)
	c := &Controller{
		cfg:    cfg,
		quotas: storage.NewReader[*core.ResourceQuota](cfg.Registry, Quotas),
		queue:  workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[controller.Key]{Name: "resource-quota"}),
	}
	c.index = newIndex(c.queue.AddAfter)
	return c
}

// Run counts until the context ends and its workers have returned.
func (c *Controller) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	group.Wait()
}

func (c *Controller) next(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if ctx.Err() != nil {
		return false
	}
	again, err := c.safely(ctx, key)
	switch {
	case err == nil:
		c.queue.Forget(key)
		if again > 0 {
			c.queue.AddAfter(key, again)
		}
	case ctx.Err() != nil:
		return false
	default:
		if !apierrors.IsConflict(err) { // a request was charged meanwhile
			klog.FromContext(ctx).Error(err, "Counting a quota failed, will retry", "cluster", key.Cluster, "namespace", key.Namespace, "name", key.Name)
		}
		c.queue.AddRateLimited(key)
	}
	return true
}

// safely turns a panic into an error: one quota that the controller cannot stand must not end the shard.
func (c *Controller) safely(ctx context.Context, key controller.Key) (again time.Duration, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v\n%s", reason, debug.Stack())
		}
	}()
	ctx, cancel := context.WithTimeout(logicalcluster.With(ctx, key.Cluster), countTimeout)
	defer cancel()
	return c.reconcile(ctx, key)
}
