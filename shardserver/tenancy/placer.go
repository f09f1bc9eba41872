package tenancy

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

// Placer stores the placement of a new workspace with the workspace, so that the controller need not reserve it with a
// write of its own. It places while this replica leads: only the leader knows which shards it has chosen since their
// last reports. The controller places all other workspaces.
type Placer struct {
	// place is set before the server serves; nil if the controllers are disabled.
	place   placeFunc
	leading atomic.Bool
}

// placeFunc returns a new workspace with its placement. The caller must not change the given one, and must call cancel if
// the workspace is not created. A workspace that the controller has to place is returned as it is.
type placeFunc func(ctx context.Context, workspace *tenancyv1alpha1.Workspace) (placed *tenancyv1alpha1.Workspace, cancel func())

// Run is the task of a leader.
func (p *Placer) Run(ctx context.Context) {
	p.leading.Store(p.place != nil)
	<-ctx.Done()
	p.leading.Store(false)
}

// Storage returns the storage of workspaces with placement. Placement follows the admission of a request, so that nothing
// that a user or a webhook sends is taken for a placement, and a refused request counts for no shard.
func (p *Placer) Storage(workspaces storage.Interface) storage.Interface {
	return &placingStorage{workspaces, p}
}

type placingStorage struct {
	storage.Interface
	placer *Placer
}

// Create implements storage.Interface.
func (s *placingStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	workspace, isWorkspace := obj.(*tenancyv1alpha1.Workspace)
	if !isWorkspace || !s.placer.leading.Load() {
		return s.Interface.Create(ctx, key, obj, out, ttl)
	}
	placed, cancel := s.placer.place(ctx, workspace)
	if err := s.Interface.Create(ctx, key, placed, out, ttl); err != nil {
		cancel()
		return err
	}
	return nil
}

// place is the placeFunc of the controller. It leaves a workspace as it is if that has no logical cluster, has a placement,
// or cannot be placed, which the controller reports.
func (c *workspaceController) place(ctx context.Context, workspace *tenancyv1alpha1.Workspace) (placed *tenancyv1alpha1.Workspace, cancel func()) {
	notPlaced := func() {}
	if workspace.Spec.Mount != nil || workspace.Spec.Cluster != "" || workspace.Annotations[tenancyv1alpha1.WorkspaceClusterAnnotationKey] != "" {
		return workspace, notPlaced
	}
	all, err := c.shards.List(ctx)
	if err != nil || chosenShard(workspace, all) != "" {
		return workspace, notPlaced
	}
	own, err := c.cfg.Health.Current(ctx)
	if err != nil { // the load of this shard is unknown, for instance because the client has disconnected
		return workspace, notPlaced
	}
	shard, refused := selectShard(workspace, all, c.choose(own))
	if refused != nil {
		return workspace, notPlaced
	}
	placed = workspace.DeepCopy()
	setPlacement(placed, shard)
	return placed, func() { c.scheduler.Cancel(shard.Name) }
}
