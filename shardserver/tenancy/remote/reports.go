package remote

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// ReportReader reads the reports of other shards on the logical clusters of workspaces of this one.
type ReportReader struct {
	shardName string
	reports   publishedReader[*shardingv1alpha1.LogicalClusterReport]
}

// NewReportReader returns a reader of the reports for a shard.
func NewReportReader(registry *storage.Registry, shardName string) *ReportReader {
	return &ReportReader{shardName, storage.NewReader[*shardingv1alpha1.LogicalClusterReport](registry, reports).Global()}
}

// MapToWorkspace maps the report of another shard to the workspace of the logical cluster.
func (r *ReportReader) MapToWorkspace(event watch.Event) []controller.Request {
	report, ok := event.Object.(*shardingv1alpha1.LogicalClusterReport)
	if !ok || report.Spec.Shard != r.shardName {
		return nil
	}
	parent, workspace, ok := placement.ParseReportName(report.Name)
	if !ok {
		return nil
	}
	return []controller.Request{{ClusterName: parent, Name: workspace}}
}

// Report returns the report of another shard on the logical cluster of a workspace; nil if there is none.
func (r *ReportReader) Report(ctx context.Context, parent logicalcluster.Name, workspace *tenancyv1alpha1.Workspace) (*shardingv1alpha1.LogicalClusterReport, error) {
	cluster, ok := placement.Cluster(workspace)
	if !ok {
		return nil, nil
	}
	return r.ReportOn(ctx, parent, workspace, cluster)
}

// ReportOn returns the report on a logical cluster of a workspace; nil if there is none. It prefers the one of the
// workspace's shard, as several shards can publish under the same name.
func (r *ReportReader) ReportOn(ctx context.Context, parent logicalcluster.Name, workspace *tenancyv1alpha1.Workspace, cluster logicalcluster.Name) (*shardingv1alpha1.LogicalClusterReport, error) {
	shard := workspace.Annotations[corev1alpha1.ShardAnnotationKey]
	report, err := publishedBy(logicalcluster.With(ctx, cluster), r.reports, shard, placement.ReportName(parent, workspace.Name))
	if notPublished(err) {
		return nil, nil
	}
	return report, err
}

// publishedReader reads requests or reports of other shards, in the logical cluster of the context.
type publishedReader[T metav1.Object] interface {
	Get(ctx context.Context, namespace, name string) (T, error)
	List(ctx context.Context, namespace string, selector labels.Selector) ([]T, error)
}

// publishedBy returns the object that a shard has published under a name, else one that another shard has.
func publishedBy[T metav1.Object](ctx context.Context, from publishedReader[T], shard, name string) (T, error) {
	found, err := from.Get(ctx, "", name)
	if err != nil || shard == "" || placement.Publisher(found) == shard {
		return found, err
	}
	all, err := from.List(ctx, "", nil)
	if err != nil {
		return found, err
	}
	for _, other := range all {
		if other.GetName() == name && placement.Publisher(other) == shard {
			return other, nil
		}
	}
	return found, nil
}

// notPublished reports whether nothing is published or the replica is not synced. The absence of a request or a report
// has no effects, so the two are not distinguished.
func notPublished(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err)
}
