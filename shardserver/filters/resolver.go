package filters

import (
	"context"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// userSegment starts the paths of home workspaces, "user:<name>".
const userSegment = "user"

// Look-ups in etcd that unknown paths may cause, for all clients together: nobody is authenticated yet.
const (
	latestPerSecond = 50
	latestBurst     = 50
)

// CachedResolver walks Workspace objects in the shard's watch cache, one look-up for each segment. It keeps nothing. A
// workspace that the cache does not have, or not yet as it is, is looked up in etcd once, as long as that is asked for
// rarely: who has just seen a workspace become Ready finds it, and who tries names costs the shard nothing.
type CachedResolver struct {
	// shard is the name of this shard.
	shard           string
	latest          *rate.Limiter
	workspaces      *storage.Reader[*tenancyv1alpha1.Workspace]
	logicalClusters *storage.Reader[*corev1alpha1.LogicalCluster]
	mounts          bool
}

// NewResolver returns a resolver over the workspaces of the shard of that name. mounts tells whether paths may lead out
// of it.
func NewResolver(registry *storage.Registry, shard string, mounts bool) *CachedResolver {
	return &CachedResolver{
		shard:           shard,
		latest:          rate.NewLimiter(latestPerSecond, latestBurst),
		workspaces:      storage.NewReader[*tenancyv1alpha1.Workspace](registry, tenancyv1alpha1.Resource("workspaces")),
		logicalClusters: storage.NewReader[*corev1alpha1.LogicalCluster](registry, corev1alpha1.Resource("logicalclusters")),
		mounts:          mounts,
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
	unavailable, shard := false, r.shard
	for i, name := range segments[1:] {
		workspace, err := r.workspace(logicalcluster.With(ctx, cluster), name)
		if apierrors.IsNotFound(err) {
			return logicalcluster.Name{}, errNotFound
		}
		if err != nil {
			return logicalcluster.Name{}, err
		}
		unavailable = unavailable || workspace.Status.Phase == corev1alpha1.LogicalClusterPhaseUnavailable
		if last := i == len(segments)-2; r.mounts && last && leadsElsewhere(workspace) {
			if unavailable {
				return logicalcluster.Name{}, errNotAvailable
			}
			return logicalcluster.Name{}, &mounted{in: cluster, url: workspace.Spec.URL}
		}
		if !isIndexed(workspace) {
			return logicalcluster.Name{}, errNotFound
		}
		if cluster, err = logicalcluster.ParseName(workspace.Spec.Cluster); err != nil {
			return logicalcluster.Name{}, errNotFound
		}
		shard = workspace.Annotations[corev1alpha1.ShardAnnotationKey]
	}
	if unavailable {
		return logicalcluster.Name{}, errNotAvailable
	}
	return cluster, r.exists(logicalcluster.With(ctx, cluster), shard)
}

// exists returns nil if the context's logical cluster is here. shard is the one that it should be on. A logical cluster
// that the cache does not have and that cannot be looked up is called elsewhere, for then clients try again.
func (r *CachedResolver) exists(ctx context.Context, shard string) error {
	_, err := r.logicalClusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if !apierrors.IsNotFound(err) {
		return err
	}
	if shard != r.shard || !r.latest.Allow() {
		return errElsewhere
	}
	if _, err = r.logicalClusters.GetLatest(ctx, "", corev1alpha1.LogicalClusterName); apierrors.IsNotFound(err) {
		return errNotFound
	}
	return err
}

func (r *CachedResolver) workspace(ctx context.Context, name string) (*tenancyv1alpha1.Workspace, error) {
	workspace, err := r.workspaces.Get(ctx, "", name)
	stale := apierrors.IsNotFound(err) || err == nil && workspace.Spec.Mount == nil && !isIndexed(workspace)
	if stale && r.latest.Allow() {
		return r.workspaces.GetLatest(ctx, "", name)
	}
	return workspace, err
}

// isIndexed tells whether paths lead through a workspace yet.
func isIndexed(workspace *tenancyv1alpha1.Workspace) bool {
	return workspace.Status.Phase != corev1alpha1.LogicalClusterPhaseScheduling && workspace.Spec.Cluster != ""
}

// leadsElsewhere tells whether a workspace stands for a server that is known.
func leadsElsewhere(workspace *tenancyv1alpha1.Workspace) bool {
	return workspace.Spec.Mount != nil && workspace.Spec.Cluster == "" && (workspace.Spec.URL != "" || workspace.Status.Phase == corev1alpha1.LogicalClusterPhaseUnavailable)
}
