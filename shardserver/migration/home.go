package migration

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
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
	h.countActive(ctx)
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
	children, err := h.childrenOf(ctx, migration)
	if err != nil {
		return controller.Result{}, err
	}
	state := Home{Migration: migration, Reports: reports, Children: children}
	after := state.Status()
	again := markProgress(after, time.Now())
	ctx = logicalcluster.With(ctx, key.ClusterName)
	if err := h.write(ctx, migration, after); err != nil {
		return controller.Result{}, err
	}
	return controller.Result{RequeueAfter: again}, h.moveChild(ctx, after, state)
}

// countActive counts the migrations that have not ended, and those of them without progress.
func (h *homeController) countActive(ctx context.Context) {
	all, err := h.migrations.List(logicalcluster.With(ctx, logicalcluster.Wildcard), "", nil)
	if err != nil {
		return // the next event counts
	}
	running, stalled := 0, 0
	for _, migration := range all {
		switch {
		case hasEnded(migration):
		case conditionsv1alpha1.IsFalse(migration, migrationv1alpha1.Progressing):
			stalled++
		default:
			running++
		}
	}
	active.WithLabelValues("running").Set(float64(running))
	active.WithLabelValues("stalled").Set(float64(stalled))
}

// moveChild creates the migration of the next child, and stores which one that is after it exists.
func (h *homeController) moveChild(ctx context.Context, migration *migrationv1alpha1.LogicalClusterMigration, state Home) error {
	c := h.cfg.Clients.Typed
	state.Migration = migration
	next := state.runningChild()
	if next == nil {
		if next = state.Child(); next == nil {
			return nil
		}
		err := c.Create(ctx, next)
		if apierrors.IsAlreadyExists(err) { // the watch cache is behind, or it is of somebody else
			return apierrors.NewConflict(migrations, next.Name, err)
		}
		if err != nil {
			return fmt.Errorf("creating migration %q: %w", next.Name, err)
		}
	}
	if migration.Annotations[movingChildAnnotation] == next.Spec.LogicalCluster {
		return nil
	}
	updated := migration.DeepCopy()
	metav1.SetMetaDataAnnotation(&updated.ObjectMeta, movingChildAnnotation, next.Spec.LogicalCluster)
	if err := c.Update(ctx, updated); err != nil {
		return fmt.Errorf("storing the child of migration %q: %w", migration.Name, err)
	}
	return nil
}

// write stores the finalizer and the path before a migration has an effect, and removes the finalizer after its end.
func (h *homeController) write(ctx context.Context, before, after *migrationv1alpha1.LogicalClusterMigration) error {
	c := h.cfg.Clients.Typed
	added := before.DeletionTimestamp == nil && !hasEnded(before) && controllerutil.AddFinalizer(after, migrationv1alpha1.MigrationFinalizer)
	if added || !maps.Equal(before.Annotations, after.Annotations) {
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
		h.record(ctx, before, after)
	}
	if hasEnded(after) && controllerutil.RemoveFinalizer(after, migrationv1alpha1.MigrationFinalizer) {
		if err := c.Update(ctx, after); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("removing the finalizer of migration %q: %w", after.Name, err)
		}
	}
	return nil
}
