package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

// fullRetryInterval is the requeue delay of a request while this shard is full.
const fullRetryInterval = 10 * time.Second

// requestController processes the requests of other shards: it creates and deletes logical clusters of their
// workspaces.
type requestController struct {
	cfg      Config
	requests *RequestReader
}

// NewRequestController returns the controller that processes the requests of other shards.
func NewRequestController(cfg Config) controller.Controller {
	c := &requestController{cfg: cfg, requests: NewRequestReader(cfg)}
	return controller.Controller{
		Name:                    "logicalclusterrequest",
		Sources:                 []controller.Source{{Resource: requests, Global: true, MapFunc: c.requests.MapToReport}},
		MaxConcurrentReconciles: cfg.Workers,
		Reconcile:               c.reconcile,
	}
}

func (c *requestController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	responder, err := c.requests.read(ctx, key)
	if responder == nil || err != nil {
		return controller.Result{}, err
	}
	switch responder.Step() {
	case placement.Create:
		return controller.Result{}, c.create(ctx, responder)
	case placement.Delete:
		return controller.Result{}, c.cfg.Delete(ctx, responder.LogicalCluster)
	}
	if responder.Full != "" && responder.Refused() {
		return controller.Result{RequeueAfter: fullRetryInterval}, nil
	}
	return controller.Result{}, nil
}

// create creates the logical cluster with the reservations of its bindings, as for a workspace of this shard.
func (c *requestController) create(ctx context.Context, responder *placement.Responder) error {
	cluster := responder.New()
	aliases, err := c.aliases(ctx, cluster)
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, corev1alpha1.ResourceBindingsAnnotationKey, c.cfg.Defaults.Reservations(ctx, responder.Cluster, aliases))
	if err := c.cfg.Client.Create(ctx, cluster); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating logical cluster %q for workspace %q of another shard: %w", responder.Cluster, responder.Workspace, err)
	}
	return nil
}

// aliases returns the type of a new logical cluster with all types it extends; none while they are not synced, in which
// case the bindings acquire their resources later.
func (c *requestController) aliases(ctx context.Context, cluster *corev1alpha1.LogicalCluster) ([]workspacetype.Resolved, error) {
	ref, err := workspacetype.ParseReference(cluster.Annotations[corev1alpha1.LogicalClusterTypeAnnotationKey])
	if err != nil {
		return nil, nil // the initialization reports the invalid type
	}
	leaf, err := c.cfg.Types.Get(ctx, ref)
	if err == nil {
		var aliases []workspacetype.Resolved
		if aliases, err = c.cfg.Types.Aliases(ctx, leaf); err == nil {
			return aliases, nil
		}
	}
	if errors.Is(err, workspacetype.ErrUnresolvable) || apierrors.IsServiceUnavailable(err) {
		return nil, nil
	}
	return nil, err
}
