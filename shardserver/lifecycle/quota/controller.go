package quota

import (
	"context"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	workers = 5
	// resyncInterval is how often a quota is recounted without events.
	resyncInterval = 5 * time.Minute
	// enqueueDelay is the delay between a deletion and the count of its quotas, so that many deletions cause one count.
	enqueueDelay = 100 * time.Millisecond
	// inFlightRequeueDelay is the requeue delay of a quota that was counted while requests were in flight.
	inFlightRequeueDelay = time.Second
	// unservedRequeueDelay is the requeue delay of a quota with resources that its logical cluster does not serve as far
	// as this process has observed: other processes may serve them a moment earlier, and no event reports when this one
	// does.
	unservedRequeueDelay = 10 * time.Second
	countTimeout         = time.Minute
	retryBase            = 20 * time.Millisecond
	retryMax             = time.Minute
)

// Config configures a Controller.
type Config struct {
	Registry   *storage.Registry
	Kubernetes kubernetes.Interface
	// InFlight are the requests that admission has charged in this process. Those of another replica are unknown: there,
	// an object that is stored during the count may be missed until the next one.
	InFlight *InFlight
}

// Controller updates the status of quotas. Its event handlers belong in an informer.Set of all storages.
type Controller struct {
	cfg        Config
	quotas     *storage.Reader[*core.ResourceQuota]
	controller *controller.Typed[controller.Request]

	*index
}

// New returns a controller for one run.
func New(cfg Config) *Controller {
	c := &Controller{
		cfg:    cfg,
		quotas: storage.NewReader[*core.ResourceQuota](cfg.Registry, Quotas),
	}
	c.controller = controller.NewTyped(controller.Options[controller.Request]{
		Name: "resource-quota", MaxConcurrentReconciles: workers, Timeout: countTimeout, RetryBase: retryBase, RetryMax: retryMax,
		ClusterName: controller.ClusterNameOf,
		Reconcile: func(ctx context.Context, req controller.Request) (controller.Result, error) {
			after, err := c.reconcile(ctx, req)
			return controller.Result{RequeueAfter: after}, err
		},
	})
	c.index = newIndex(c.controller.AddAfter)
	return c
}

// Run counts until the context ends and its workers have returned.
func (c *Controller) Run(ctx context.Context) { c.controller.Run(ctx) }
