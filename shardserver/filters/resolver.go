package filters

import (
	"context"
	"errors"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/workspacepath"
)

// Look-ups in etcd that unknown paths may cause, for all clients together: nobody is authenticated yet.
const (
	latestPerSecond = 50
	latestBurst     = 50
)

// CachedResolver walks Workspace objects in the shard's watch cache, one look-up for each segment. It keeps nothing. A
// workspace that the cache does not have, or not yet as it is, is looked up in etcd once, as long as that is asked for
// rarely: who has just seen a workspace become Ready finds it, and who tries names costs the shard nothing.
type CachedResolver struct {
	registry *storage.Registry
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
		registry:        registry,
		shard:           shard,
		latest:          rate.NewLimiter(latestPerSecond, latestBurst),
		workspaces:      storage.NewReader[*tenancyv1alpha1.Workspace](registry, tenancyv1alpha1.Resource("workspaces")),
		logicalClusters: storage.NewReader[*corev1alpha1.LogicalCluster](registry, corev1alpha1.Resource("logicalclusters")),
		mounts:          mounts,
	}
}

// Resolve implements Resolver.
func (r *CachedResolver) Resolve(ctx context.Context, path logicalcluster.Path) (logicalcluster.Name, error) {
	way := &way{resolver: r, shard: r.shard}
	walker := workspacepath.Walker{Workspace: r.workspace, Here: r.registry.Here, Visit: way.pass}
	cluster, err := walker.Walk(ctx, path)
	switch {
	case errors.Is(err, workspacepath.ErrElsewhere):
		return logicalcluster.Name{}, r.beyond(path, way)
	case apierrors.IsNotFound(err):
		return logicalcluster.Name{}, errNotFound
	case err != nil:
		return logicalcluster.Name{}, err
	case way.unavailable:
		return logicalcluster.Name{}, errNotAvailable
	}
	return cluster, r.exists(logicalcluster.With(ctx, cluster), way.shard)
}

// way is what a resolution has passed.
type way struct {
	resolver *CachedResolver
	// unavailable says that a workspace cannot be entered now.
	unavailable bool
	// shard is the one that the last workspace leads to, at first that of the resolver.
	shard string
	// left says that a workspace led to another shard.
	left bool
}

// pass looks at one workspace. A path that ends in a mounted one ends there.
func (w *way) pass(step workspacepath.Step) error {
	workspace := step.Workspace
	w.unavailable = w.unavailable || workspacepath.Unavailable(workspace)
	if w.resolver.mounts && step.Last && leadsElsewhere(workspace) {
		if w.unavailable {
			return errNotAvailable
		}
		return &mounted{in: step.In, url: workspace.Spec.URL}
	}
	w.shard = workspace.Annotations[corev1alpha1.ShardAnnotationKey]
	w.left = w.shard != "" && w.shard != w.resolver.shard
	return nil
}

// beyond is the answer to a path whose end this shard cannot see: elsewhere if it is known to lead to another shard.
func (r *CachedResolver) beyond(path logicalcluster.Path, passed *way) error {
	switch {
	case passed.unavailable:
		return errNotAvailable
	case passed.left:
		return errElsewhere
	case !r.latest.Allow():
		return errElsewhere // it is not cheap to tell, and who is told so asks again
	}
	for _, object := range r.registry.Elsewhere().List(r.logicalClusters.Resource(), logicalcluster.Wildcard) {
		if cluster, ok := object.(*corev1alpha1.LogicalCluster); ok && cluster.Annotations[logicalcluster.PathAnnotationKey] == path.String() {
			return errElsewhere
		}
	}
	return errNotFound
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

func (r *CachedResolver) workspace(ctx context.Context, in logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error) {
	ctx = logicalcluster.With(ctx, in)
	workspace, err := r.workspaces.Get(ctx, "", name)
	stale := apierrors.IsNotFound(err) || err == nil && workspace.Spec.Mount == nil && !workspacepath.Indexed(workspace)
	if stale && r.latest.Allow() {
		return r.workspaces.GetLatest(ctx, "", name)
	}
	return workspace, err
}

// leadsElsewhere tells whether a workspace stands for a server that is known.
func leadsElsewhere(workspace *tenancyv1alpha1.Workspace) bool {
	return workspace.Spec.Mount != nil && workspace.Spec.Cluster == "" && (workspace.Spec.URL != "" || workspace.Status.Phase == corev1alpha1.LogicalClusterPhaseUnavailable)
}
