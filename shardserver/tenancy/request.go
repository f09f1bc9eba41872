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

// fullAgain is when a shard that is full looks again whether it can do what it was asked for.
const fullAgain = 10 * time.Second

// inquiries reads what other shards ask this one for, and what there is to say about it.
type inquiries struct {
	cfg      Config
	requests *storage.Reader[*shardingv1alpha1.LogicalClusterRequest]
	clusters *storage.Reader[*corev1alpha1.LogicalCluster]
}

func newInquiries(cfg Config) inquiries {
	return inquiries{
		cfg:      cfg,
		requests: storage.NewReader[*shardingv1alpha1.LogicalClusterRequest](cfg.Registry, requests).Everywhere(),
		clusters: storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, logicalClusters),
	}
}

// asked maps a request to this shard to the report about it.
func (i inquiries) asked(event watch.Event) []controller.Key {
	request, ok := event.Object.(*shardingv1alpha1.LogicalClusterRequest)
	if !ok || request.Spec.Shard != i.cfg.ShardName {
		return nil
	}
	workspace, cluster, ok := placement.ParseRequestName(request.Name)
	if !ok {
		return nil
	}
	return []controller.Key{{Cluster: cluster, Name: placement.ReportName(logicalcluster.Of(request), workspace)}}
}

// about maps a request to this shard to the LogicalCluster that it is about.
func (i inquiries) about(event watch.Event) []controller.Key {
	keys := i.asked(event)
	for at := range keys {
		keys[at].Name = corev1alpha1.LogicalClusterName
	}
	return keys
}

// read returns the inquiry that a report, given by its key, would answer. That there is no logical cluster is only believed
// after asking storage itself, and that there is no request only where all are known.
func (i inquiries) read(ctx context.Context, key controller.Key) (*placement.Inquiry, error) {
	parent, workspace, ok := placement.ParseReportName(key.Name)
	if !ok {
		return nil, nil
	}
	inquiry := &placement.Inquiry{Own: i.cfg.ShardName, Parent: parent, Workspace: workspace, Cluster: key.Cluster, Full: i.cfg.Health.Full()}
	var err error
	inquiry.Request, err = i.requests.Get(logicalcluster.With(ctx, parent), "", placement.RequestName(workspace, key.Cluster))
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the request for logical cluster %q: %w", key.Cluster, err)
	}
	cluster, err := i.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) && inquiry.Request != nil {
		cluster, err = i.clusters.GetLatest(ctx, "", corev1alpha1.LogicalClusterName)
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading logical cluster %q: %w", key.Cluster, err)
	}
	if inquiry.Request != nil && cluster != nil {
		if shard, ok := placement.Remote(cluster); ok && shard != placement.Publisher(inquiry.Request) {
			if inquiry.Request, err = publishedBy(logicalcluster.With(ctx, parent), i.requests, shard, inquiry.Request.Name); err != nil {
				return nil, fmt.Errorf("reading the request for logical cluster %q: %w", key.Cluster, err)
			}
		}
	}
	inquiry.LogicalCluster = cluster
	return inquiry, nil
}

// requestOf returns what is known of the request for a logical cluster that a workspace on another shard owns; nil for
// any other. That nothing was asked for is no proof that nothing will be.
func (i inquiries) requestOf(ctx context.Context, cluster *corev1alpha1.LogicalCluster) (*placement.Inquiry, error) {
	if _, ok := placement.Remote(cluster); !ok {
		return nil, nil
	}
	owner, name := cluster.Spec.Owner, logicalcluster.Of(cluster)
	parent, err := logicalcluster.ParseName(owner.Cluster)
	if err != nil {
		return nil, nil //nolint:nilerr // nobody can ask for it
	}
	request, err := publishedBy(logicalcluster.With(ctx, parent), i.requests, cluster.Annotations[corev1alpha1.OwnerShardAnnotationKey], placement.RequestName(owner.Name, name))
	if err != nil && !unheard(err) {
		return nil, fmt.Errorf("reading the request for logical cluster %q: %w", name, err)
	}
	return &placement.Inquiry{Own: i.cfg.ShardName, Parent: parent, Workspace: owner.Name, Cluster: name, Request: request, LogicalCluster: cluster}, nil
}

// requestController does what other shards ask this one for: it makes and deletes logical clusters of their workspaces.
type requestController struct {
	cfg Config
	inquiries
}

func newRequestController(cfg Config) controller.Controller {
	c := &requestController{cfg: cfg, inquiries: newInquiries(cfg)}
	return controller.Controller{
		Name:      "logicalclusterrequest",
		Inputs:    []controller.Input{{Resource: requests, Everywhere: true, Keys: c.asked}},
		Workers:   workers,
		Reconcile: c.reconcile,
	}
}

func (c *requestController) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	inquiry, err := c.read(ctx, key)
	if inquiry == nil || err != nil {
		return controller.Result{}, err
	}
	switch inquiry.Step() {
	case placement.Create:
		return controller.Result{}, c.create(ctx, inquiry)
	case placement.Delete:
		return controller.Result{}, deleteCluster(ctx, c.cfg.Clients.Typed, inquiry.LogicalCluster)
	}
	if inquiry.Full != "" && inquiry.Refused() {
		return controller.Result{RequeueAfter: fullAgain}, nil
	}
	return controller.Result{}, nil
}

// create makes the logical cluster with the locks of its bindings, as for a workspace of this shard.
func (c *requestController) create(ctx context.Context, inquiry *placement.Inquiry) error {
	cluster := inquiry.New()
	aliases, err := c.aliases(ctx, cluster)
	if err != nil {
		return err
	}
	setMapEntry(&cluster.Annotations, corev1alpha1.ResourceBindingsAnnotationKey, c.cfg.Defaults.Locks(ctx, inquiry.Cluster, aliases))
	if err := c.cfg.Clients.Typed.Create(ctx, cluster); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating logical cluster %q for workspace %q of another shard: %w", inquiry.Cluster, inquiry.Workspace, err)
	}
	return nil
}

// aliases returns the types that a new logical cluster counts as; none where this shard does not know them yet, in which
// case the bindings take what is theirs later.
func (c *requestController) aliases(ctx context.Context, cluster *corev1alpha1.LogicalCluster) ([]workspacetype.Resolved, error) {
	ref, err := workspacetype.ParseReference(cluster.Annotations[corev1alpha1.LogicalClusterTypeAnnotationKey])
	if err != nil {
		return nil, nil //nolint:nilerr // the initialization says what is wrong with the type
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
