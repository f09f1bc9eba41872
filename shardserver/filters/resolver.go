package filters

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/workspacepath"
)

// CachedResolver resolves paths by Workspace objects in the shard's watch cache, one lookup for each segment. It keeps
// no state. A workspace that the cache does not have, or shows without a scheduled logical cluster, is read from etcd
// once, within the rate limit of the user: a client that has just seen a workspace become Ready can use it, and guessing
// names causes little load.
type CachedResolver struct {
	registry *storage.Registry
	// shard is the name of this shard.
	shard           string
	workspaces      *storage.Reader[*tenancyv1alpha1.Workspace]
	logicalClusters *storage.Reader[*corev1alpha1.LogicalCluster]
	mounts          bool
}

// NewResolver returns a resolver over the workspaces of the named shard. mounts enables mounted workspaces.
func NewResolver(registry *storage.Registry, shard string, mounts bool) *CachedResolver {
	return &CachedResolver{
		registry:        registry,
		shard:           shard,
		workspaces:      storage.NewReader[*tenancyv1alpha1.Workspace](registry, tenancyv1alpha1.Resource("workspaces")),
		logicalClusters: storage.NewReader[*corev1alpha1.LogicalCluster](registry, corev1alpha1.Resource("logicalclusters")),
		mounts:          mounts,
	}
}

// Resolve implements Resolver.
func (r *CachedResolver) Resolve(ctx context.Context, path logicalcluster.Path, mayRead func() bool) (logicalcluster.Name, error) {
	state := &resolution{resolver: r, shard: r.shard, mayRead: mayRead}
	walker := workspacepath.Walker{GetWorkspace: state.getWorkspace, IsLocal: r.registry.IsLocal, Visit: state.visit}
	cluster, err := walker.Walk(ctx, path)
	switch {
	case errors.Is(err, workspacepath.ErrRemote):
		return logicalcluster.Name{}, r.remoteError(path, state)
	case apierrors.IsNotFound(err):
		return logicalcluster.Name{}, errNotFound
	case err != nil:
		return logicalcluster.Name{}, err
	case state.unavailable:
		return logicalcluster.Name{}, errNotAvailable
	}
	return cluster, r.checkExists(logicalcluster.With(ctx, cluster), state)
}

// resolution is the state of a resolution.
type resolution struct {
	resolver *CachedResolver
	mayRead  func() bool
	// unavailable is set if a workspace on the path is not available.
	unavailable bool
	// shard is the shard of the last workspace, initially that of the resolver.
	shard string
	// remote is set if the last workspace is scheduled to another shard.
	remote bool
}

// visit visits one workspace. A path whose last workspace is mounted resolves to the mount.
func (r *resolution) visit(step workspacepath.Step) error {
	workspace := step.Workspace
	r.unavailable = r.unavailable || workspacepath.IsUnavailable(workspace)
	if r.resolver.mounts && step.Last && isMount(workspace) {
		if r.unavailable {
			return errNotAvailable
		}
		return &mountError{cluster: step.Cluster, url: workspace.Spec.URL}
	}
	r.shard = workspace.Annotations[corev1alpha1.ShardAnnotationKey]
	r.remote = r.shard != "" && r.shard != r.resolver.shard
	return nil
}

// remoteError returns the error for a path whose end is not on this shard: errRemote if the path is known to lead to
// another shard.
func (r *CachedResolver) remoteError(path logicalcluster.Path, state *resolution) error {
	switch {
	case state.unavailable:
		return errNotAvailable
	case state.remote:
		return errRemote
	case !state.mayRead():
		return errRemote // the lookup below is expensive; clients retry after this error
	}
	for _, object := range r.registry.RemoteStore().List(r.logicalClusters.Resource(), logicalcluster.Wildcard) {
		if cluster, ok := object.(*corev1alpha1.LogicalCluster); ok && cluster.Annotations[logicalcluster.PathAnnotationKey] == path.String() {
			return errRemote
		}
	}
	return errNotFound
}

// checkExists returns nil if the context's logical cluster is on this shard. For one that the cache does not have and that
// cannot be read from etcd now, it returns errRemote, so that clients retry.
func (r *CachedResolver) checkExists(ctx context.Context, state *resolution) error {
	_, err := r.logicalClusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if !apierrors.IsNotFound(err) {
		return err
	}
	if state.shard != r.shard || !state.mayRead() {
		return errRemote
	}
	if _, err = r.logicalClusters.GetLatest(ctx, "", corev1alpha1.LogicalClusterName); apierrors.IsNotFound(err) {
		return errNotFound
	}
	return err
}

func (r *resolution) getWorkspace(ctx context.Context, in logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error) {
	ctx = logicalcluster.With(ctx, in)
	workspaces := r.resolver.workspaces
	workspace, err := workspaces.Get(ctx, "", name)
	stale := apierrors.IsNotFound(err) || err == nil && workspace.Spec.Mount == nil && !workspacepath.IsResolvable(workspace)
	if stale && r.mayRead() {
		return workspaces.GetLatest(ctx, "", name)
	}
	return workspace, err
}

// isMount reports whether a workspace is a mount whose server is set.
func isMount(workspace *tenancyv1alpha1.Workspace) bool {
	return workspace.Spec.Mount != nil && workspace.Spec.Cluster == "" && (workspace.Spec.URL != "" || workspace.Status.Phase == corev1alpha1.LogicalClusterPhaseUnavailable)
}
