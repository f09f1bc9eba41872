package migration

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// homeController writes the status of the migrations that this shard stores.
type homeController struct {
	cfg Config
	reader
	// ownReport returns the report of this shard on a migration, or nil. Only the reports of others are read from the cache.
	ownReport func(context.Context, controller.Request) (*shardingv1alpha1.LogicalClusterMigrationReportSpec, error)
}

func (h *homeController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	local, err := h.cfg.Registry.IsLocal(ctx, key.ClusterName)
	if err != nil || !local {
		return controller.Result{}, err
	}
	migration, err := h.migration(ctx, key)
	if err != nil || migration == nil {
		return controller.Result{}, err
	}
	reports, err := h.reportsOn(ctx, key, migration)
	if err != nil {
		return controller.Result{}, err
	}
	own, err := h.ownReport(ctx, key)
	if err != nil {
		return controller.Result{}, err
	}
	if own != nil {
		reports[h.cfg.Shard] = *own
	}
	after := Home{Migration: migration, Reports: reports}.Status()
	return controller.Result{}, h.write(logicalcluster.With(ctx, key.ClusterName), migration, after)
}

// write stores the finalizer before a migration has an effect, and removes it after its end.
func (h *homeController) write(ctx context.Context, before, after *migrationv1alpha1.LogicalClusterMigration) error {
	c := h.cfg.Clients.Typed
	if before.DeletionTimestamp == nil && !hasEnded(before) && controllerutil.AddFinalizer(after, migrationv1alpha1.MigrationFinalizer) {
		status := after.Status
		if err := c.Update(ctx, after); err != nil {
			return fmt.Errorf("adding the finalizer of migration %q: %w", after.Name, err)
		}
		after.Status = status
	}
	if !equality.Semantic.DeepEqual(before.Status, after.Status) {
		if err := c.Status().Update(ctx, after); err != nil {
			return fmt.Errorf("updating the status of migration %q: %w", after.Name, err)
		}
	}
	if hasEnded(after) && controllerutil.RemoveFinalizer(after, migrationv1alpha1.MigrationFinalizer) {
		if err := c.Update(ctx, after); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("removing the finalizer of migration %q: %w", after.Name, err)
		}
	}
	return nil
}
