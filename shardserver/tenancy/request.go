package tenancy

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

// fullRetryInterval is the requeue delay of a request while this shard is full.
const fullRetryInterval = 10 * time.Second

// requestReader reads the requests of other shards to this one, and the logical clusters that they are for.
type requestReader struct {
	cfg      Config
	requests *storage.Reader[*shardingv1alpha1.LogicalClusterRequest]
	clusters *storage.Reader[*corev1alpha1.LogicalCluster]
}

func newRequestReader(cfg Config) requestReader {
	return requestReader{
		cfg:      cfg,
		requests: storage.NewReader[*shardingv1alpha1.LogicalClusterRequest](cfg.Registry, requests).Global(),
		clusters: storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, logicalClusters),
	}
}

// mapRequestToReport maps a request to this shard to its report.
func (r requestReader) mapRequestToReport(event watch.Event) []controller.Request {
	request, ok := event.Object.(*shardingv1alpha1.LogicalClusterRequest)
	if !ok || request.Spec.Shard != r.cfg.ShardName {
		return nil
	}
	workspace, cluster, ok := placement.ParseRequestName(request.Name)
	if !ok {
		return nil
	}
	return []controller.Request{{ClusterName: cluster, Name: placement.ReportName(logicalcluster.Of(request), workspace)}}
}

// mapRequestToCluster maps a request to this shard to its LogicalCluster.
func (r requestReader) mapRequestToCluster(event watch.Event) []controller.Request {
	keys := r.mapRequestToReport(event)
	for at := range keys {
		keys[at].Name = corev1alpha1.LogicalClusterName
	}
	return keys
}

// read returns the Responder for a report. A missing logical cluster is verified with a consistent read; a missing
// request is an error while requests are not synced.
func (r requestReader) read(ctx context.Context, key controller.Request) (*placement.Responder, error) {
	parent, workspace, ok := placement.ParseReportName(key.Name)
	if !ok {
		return nil, nil
	}
	responder := &placement.Responder{ShardName: r.cfg.ShardName, Parent: parent, Workspace: workspace, Cluster: key.ClusterName, Full: r.cfg.Health.Full()}
	var err error
	responder.Request, err = r.requests.Get(logicalcluster.With(ctx, parent), "", placement.RequestName(workspace, key.ClusterName))
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the request for logical cluster %q: %w", key.ClusterName, err)
	}
	cluster, err := r.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) && responder.Request != nil {
		cluster, err = r.clusters.GetLatest(ctx, "", corev1alpha1.LogicalClusterName)
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading logical cluster %q: %w", key.ClusterName, err)
	}
	if responder.Request != nil && cluster != nil {
		if shard, ok := placement.Remote(cluster); ok && shard != placement.Publisher(responder.Request) {
			if responder.Request, err = publishedBy(logicalcluster.With(ctx, parent), r.requests, shard, responder.Request.Name); err != nil {
				return nil, fmt.Errorf("reading the request for logical cluster %q: %w", key.ClusterName, err)
			}
		}
	}
	responder.LogicalCluster = cluster
	return responder, nil
}

// responderFor returns the Responder for a logical cluster of a workspace on another shard; nil for any other. The
// request may be missing because it is not published yet.
func (r requestReader) responderFor(ctx context.Context, cluster *corev1alpha1.LogicalCluster) (*placement.Responder, error) {
	if _, ok := placement.Remote(cluster); !ok {
		return nil, nil
	}
	owner, name := cluster.Spec.Owner, logicalcluster.Of(cluster)
	parent, err := logicalcluster.ParseName(owner.Cluster)
	if err != nil {
		return nil, nil // there is no request for it
	}
	request, err := publishedBy(logicalcluster.With(ctx, parent), r.requests, cluster.Annotations[corev1alpha1.OwnerShardAnnotationKey], placement.RequestName(owner.Name, name))
	if err != nil && !notPublished(err) {
		return nil, fmt.Errorf("reading the request for logical cluster %q: %w", name, err)
	}
	return &placement.Responder{ShardName: r.cfg.ShardName, Parent: parent, Workspace: owner.Name, Cluster: name, Request: request, LogicalCluster: cluster}, nil
}

// requestController processes the requests of other shards: it creates and deletes logical clusters of their
// workspaces.
type requestController struct {
	cfg Config
	requestReader
}

func newRequestController(cfg Config) controller.Controller {
	c := &requestController{cfg: cfg, requestReader: newRequestReader(cfg)}
	return controller.Controller{
		Name:                    "logicalclusterrequest",
		Sources:                 []controller.Source{{Resource: requests, Global: true, MapFunc: c.mapRequestToReport}},
		MaxConcurrentReconciles: workers,
		Reconcile:               c.reconcile,
	}
}

func (c *requestController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	responder, err := c.read(ctx, key)
	if responder == nil || err != nil {
		return controller.Result{}, err
	}
	switch responder.Step() {
	case placement.Create:
		return controller.Result{}, c.create(ctx, responder)
	case placement.Delete:
		return controller.Result{}, deleteCluster(ctx, c.cfg.Clients.Typed, responder.LogicalCluster)
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
	setMapEntry(&cluster.Annotations, corev1alpha1.ResourceBindingsAnnotationKey, c.cfg.Defaults.Reservations(ctx, responder.Cluster, aliases))
	if err := c.cfg.Clients.Typed.Create(ctx, cluster); err != nil && !apierrors.IsAlreadyExists(err) {
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
