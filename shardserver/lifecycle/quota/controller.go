package quota

import (
	"context"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/follow"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	workers = 5
	// resyncInterval is how often a quota is counted anew whatever happens.
	resyncInterval = 5 * time.Minute
	// enqueueDelay is how long after a deletion its quotas are counted, so that many deletions make one count.
	enqueueDelay = 100 * time.Millisecond
	// inFlightRequeueDelay is when a quota is counted anew because requests were on their way.
	inFlightRequeueDelay = time.Second
	// unservedRequeueDelay is when a quota is counted anew that names what its logical cluster does not serve, as far as this
	// process has heard: what brought it may be known to others a moment earlier, and nothing tells when it is known here.
	unservedRequeueDelay = 10 * time.Second
	countTimeout         = time.Minute
	retryBase            = 20 * time.Millisecond
	retryMax             = time.Minute
)

// Config is what a Controller needs.
type Config struct {
	Registry   *storage.Registry
	Kubernetes kubernetes.Interface
	// InFlight are the requests that admission let pass in this process. Another replica's are not known: there, an
	// object that is stored in the moment of the count may be missed until the next one.
	InFlight *InFlight
}

// Controller keeps the status of quotas. It is a follow.EventHandler of all storages.
type Controller struct {
	cfg        Config
	quotas     *storage.Reader[*core.ResourceQuota]
	controller *controller.Typed[controller.Request]

	*index
}

var _ follow.EventHandler = &Controller{}

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
