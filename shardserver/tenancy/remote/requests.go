package remote

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// RequestReader reads the requests of other shards to this one, and the logical clusters that they are for.
type RequestReader struct {
	cfg      Config
	requests *storage.Reader[*shardingv1alpha1.LogicalClusterRequest]
	clusters *storage.Reader[*corev1alpha1.LogicalCluster]
}

// NewRequestReader returns a reader of the requests to the shard of the configuration.
func NewRequestReader(cfg Config) *RequestReader {
	return &RequestReader{
		cfg:      cfg,
		requests: storage.NewReader[*shardingv1alpha1.LogicalClusterRequest](cfg.Registry, requests).Global(),
		clusters: storage.NewReader[*corev1alpha1.LogicalCluster](cfg.Registry, logicalClusters),
	}
}

// MapToReport maps a request to this shard to its report.
func (r *RequestReader) MapToReport(event watch.Event) []controller.Request {
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

// MapToCluster maps a request to this shard to its LogicalCluster.
func (r *RequestReader) MapToCluster(event watch.Event) []controller.Request {
	keys := r.MapToReport(event)
	for at := range keys {
		keys[at].Name = corev1alpha1.LogicalClusterName
	}
	return keys
}

// read returns the Responder for a report. A missing logical cluster is verified with a consistent read; a missing
// request is an error while requests are not synced.
func (r *RequestReader) read(ctx context.Context, key controller.Request) (*placement.Responder, error) {
	parent, workspace, ok := placement.ParseReportName(key.Name)
	if !ok {
		return nil, nil
	}
	responder := &placement.Responder{ShardName: r.cfg.ShardName, Parent: parent, Workspace: workspace, Cluster: key.ClusterName, Full: r.cfg.Full()}
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

// ResponderFor returns the Responder for a logical cluster of a workspace on another shard; nil for any other. The
// request may be missing because it is not published yet.
func (r *RequestReader) ResponderFor(ctx context.Context, cluster *corev1alpha1.LogicalCluster) (*placement.Responder, error) {
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
