// Package rebalance finds workspaces whose move to another shard evens out the load of the shards of an installation, and moves them if it
// may. The operator uses it.
//
// It has no state of its own: the LogicalClusterMigrations in root with its label are what it has done, and are kept as long as their
// logical clusters are not to be moved again.
package rebalance

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/internal/moves"
)

const (
	// Label is on the migrations of the rebalancer.
	Label      = "migration.kcp.io/rebalance"
	labelValue = "true"
)

// Options are what a step may do.
type Options struct {
	// Threshold is by how many percent of its share a shard may be above its share.
	Threshold int32
	// MaxConcurrent is the number of migrations at a time. With 0, none begin.
	MaxConcurrent int
	// GiveUp ends moves that have begun, and have not taken over.
	GiveUp bool
}

// Rebalancer evens out the load of the shards of an installation.
type Rebalancer struct {
	moves.Client
	Options
	// Inventory reads what is on a shard.
	Inventory func(ctx context.Context, shard string) (moves.Inventory, error)
}

// Step decides, and begins as many moves as may run at a time.
func (r *Rebalancer) Step(ctx context.Context, now time.Time) (Decision, error) {
	if r.GiveUp {
		if _, err := r.Stop(ctx, false); err != nil {
			return Decision{}, err
		}
	}
	shards, err := r.Shards(ctx)
	if err != nil {
		return Decision{}, err
	}
	own, others, err := r.Migrations(ctx, Label, labelValue) // before the inventory: what ends meanwhile still counts as moving
	if err != nil {
		return Decision{}, err
	}
	selectors := moves.Selectors{At: r.At}
	decision := Decide(Situation{
		Shards: shards, Migrations: own, Others: others, Threshold: r.Threshold, Now: now,
		On:       func(shard string) (moves.Inventory, error) { return r.Inventory(ctx, shard) },
		Selector: func(cluster moves.LogicalCluster) (labels.Selector, error) { return selectors.Of(ctx, cluster) },
	})
	if ctx.Err() != nil {
		return Decision{}, ctx.Err()
	}
	var errs []error
	for _, migration := range append(decision.GiveUp, decision.Expired...) {
		errs = append(errs, r.Delete(ctx, migration))
	}
	for _, move := range decision.Moves {
		if !decision.MayBegin(r.MaxConcurrent) {
			break
		}
		err := r.Create(ctx, migrationOf(move), Label, false)
		if errs = append(errs, err); err == nil {
			decision.Running++
		}
	}
	return decision, errors.Join(errs...)
}

func migrationOf(move Move) *migrationv1alpha1.LogicalClusterMigration {
	return &migrationv1alpha1.LogicalClusterMigration{
		ObjectMeta: metav1.ObjectMeta{Name: "rebalance-" + move.Name.String(), Labels: map[string]string{Label: labelValue}},
		Spec:       migrationv1alpha1.LogicalClusterMigrationSpec{LogicalCluster: move.Name.String(), DestinationShard: move.To},
	}
}

// Stop aborts the moves that have not taken over, and returns how many have not ended. With forget it also deletes the migrations that have ended.
func (r *Rebalancer) Stop(ctx context.Context, forget bool) (running int, err error) {
	own, _, err := r.Migrations(ctx, Label, labelValue)
	if errors.Is(err, moves.ErrFeatureDisabled) {
		return 0, nil
	}
	var errs []error
	for i := range own {
		runs := moves.IsRunning(&own[i])
		if runs {
			running++
		}
		if (runs || forget) && own[i].DeletionTimestamp == nil {
			errs = append(errs, r.Delete(ctx, &own[i]))
		}
	}
	return running, errors.Join(append(errs, err)...)
}
