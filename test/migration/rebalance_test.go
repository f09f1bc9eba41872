package migration

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/internal/rebalance"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// rebalanceThreshold is low, so that a few workspaces are too many.
const rebalanceThreshold = 10

// testRebalance makes beta the fullest shard, and evens out all of them.
func (e *env) testRebalance(t *testing.T) {
	objects := map[string]*corev1.ConfigMap{}
	for i := range 4 {
		name := fmt.Sprint("rebalanced-", i)
		e.workspaceOn(t, installation.Beta, "root", name)
		objects["root:"+name] = put(t, e.at(t, "root:"+name), "of-"+name)
	}
	client, inventory := e.operator(t)
	r := rebalance.Rebalancer{Client: client, Inventory: inventory, Options: rebalance.Options{Threshold: rebalanceThreshold}}

	shardtesting.Eventually(t, "a suggestion", func(ctx context.Context) error {
		found, err := r.Step(ctx, time.Now())
		if err == nil && (len(found.Moves) == 0 || found.Moves[0].From != installation.Beta || found.Moves[0].Reason == "") {
			err = fmt.Errorf("%+v", found)
		}
		return err
	})
	if begun := e.rebalanceMigrations(t); len(begun) > 0 {
		t.Errorf("a suggestion has begun %d moves", len(begun))
	}

	r.MaxConcurrent = 2
	moved := map[string]string{}
	shardtesting.EventuallyWithin(t, 3*time.Minute, "the end of the moves", func(ctx context.Context) error { // some, two at a time
		found, err := r.Step(ctx, time.Now())
		if err != nil {
			return err
		}
		if found.Running > r.MaxConcurrent {
			t.Fatalf("%d moves at a time", found.Running)
		}
		for _, migration := range e.rebalanceMigrations(t) {
			moved[migration.Spec.LogicalCluster] = migration.Spec.DestinationShard
		}
		if found.Running > 0 || len(found.Moves) > 0 || found.Moved == 0 {
			return fmt.Errorf("%+v", found)
		}
		return nil
	})
	for cluster, shard := range moved {
		object := &corev1alpha1.LogicalCluster{}
		if err := e.at(t, cluster).Get(t.Context(), clusterKey, object); err != nil {
			t.Fatal(err)
		}
		if have := object.Annotations[corev1alpha1.ShardAnnotationKey]; have != shard {
			t.Errorf("%s is on %s, want %s", cluster, have, shard)
		}
	}
	for path, object := range objects {
		checkObjects(t, e.at(t, path), []*corev1.ConfigMap{object})
	}
	shardtesting.Eventually(t, "the end of the rebalancer", func(ctx context.Context) error {
		running, err := r.Stop(ctx, true)
		if kept := len(e.rebalanceMigrations(t)); err == nil && running+kept > 0 {
			err = fmt.Errorf("%d run, %d are left", running, kept)
		}
		return err
	})
}

var clusterKey = client.ObjectKey{Name: corev1alpha1.LogicalClusterName}

// rebalanceMigrations returns the migrations of the rebalancer.
func (e *env) rebalanceMigrations(t *testing.T) []migrationv1alpha1.LogicalClusterMigration {
	t.Helper()
	var list migrationv1alpha1.LogicalClusterMigrationList
	if err := e.at(t, "root").List(t.Context(), &list, client.HasLabels{rebalance.Label}); err != nil {
		t.Fatal(err)
	}
	return list.Items
}
