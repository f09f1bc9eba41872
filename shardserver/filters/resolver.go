package filters

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// userSegment starts the paths of home workspaces, "user:<name>".
const userSegment = "user"

// CachedResolver walks Workspace objects in the shard's watch cache, one look-up for each segment. It keeps nothing.
type CachedResolver struct {
	workspaces      *storage.Reader[*tenancyv1alpha1.Workspace]
	logicalClusters *storage.Reader[*corev1alpha1.LogicalCluster]
}

// NewResolver returns a resolver over the shard's own workspaces.
func NewResolver(registry *storage.Registry) *CachedResolver {
	return &CachedResolver{
		workspaces:      storage.NewReader[*tenancyv1alpha1.Workspace](registry, tenancyv1alpha1.Resource("workspaces")),
		logicalClusters: storage.NewReader[*corev1alpha1.LogicalCluster](registry, corev1alpha1.Resource("logicalclusters")),
	}
}

// Resolve implements Resolver. The first segment is the name of a logical cluster ("user:<name>" that of a home);
// every further one is a Workspace inside the cluster before.
func (r *CachedResolver) Resolve(ctx context.Context, path logicalcluster.Path) (logicalcluster.Name, error) {
	segments := path.Segments()
	if len(segments) >= 2 && segments[0] == userSegment {
		segments = append([]string{logicalcluster.HomeName(segments[1]).String()}, segments[2:]...)
	}
	cluster, err := logicalcluster.ParseName(segments[0])
	if err != nil {
		return logicalcluster.Name{}, errNotFound
	}
	unavailable := false
	for _, name := range segments[1:] {
		workspace, err := r.workspaces.Get(logicalcluster.With(ctx, cluster), "", name)
		if apierrors.IsNotFound(err) {
			return logicalcluster.Name{}, errNotFound
		}
		if err != nil {
			return logicalcluster.Name{}, err
		}
		if workspace.Status.Phase == corev1alpha1.LogicalClusterPhaseScheduling || workspace.Spec.Cluster == "" {
			return logicalcluster.Name{}, errNotFound
		}
		unavailable = unavailable || workspace.Status.Phase == corev1alpha1.LogicalClusterPhaseUnavailable
		if cluster, err = logicalcluster.ParseName(workspace.Spec.Cluster); err != nil {
			return logicalcluster.Name{}, errNotFound
		}
	}
	if unavailable {
		return logicalcluster.Name{}, errNotAvailable
	}
	_, err = r.logicalClusters.Get(logicalcluster.With(ctx, cluster), "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		if len(segments) == 1 {
			return logicalcluster.Name{}, errNotFound
		}
		return logicalcluster.Name{}, errElsewhere
	}
	return cluster, err
}
