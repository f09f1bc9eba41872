package migration

import (
	"context"
	"fmt"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// testConcurrentMigrations creates migrations of one logical cluster at once, in two workspaces. The origin accepts one, in whatever order it learns of them,
// and the others fail with the name of that. The destination does not exist, so that the one does not end before.
func (e *env) testConcurrentMigrations(t *testing.T) {
	workspace, c := e.workspace(t, "contested", installation.Alpha)
	in := []client.Client{e.operations, e.at(t, "root")}
	all := make([]*migrationv1alpha1.LogicalClusterMigration, 8)
	var creating sync.WaitGroup
	begin := make(chan struct{})
	for i := range all {
		all[i] = newMove(fmt.Sprint("contested-", i/2), workspace.Spec.Cluster, "non-existent")
		creating.Go(func() {
			<-begin
			if err := in[i%2].Create(t.Context(), all[i]); err != nil {
				t.Error(err)
			}
		})
	}
	close(begin)
	creating.Wait()
	if t.Failed() {
		return
	}
	// read reads all, and returns the one that was accepted, if the others have failed because of it.
	read := func(ctx context.Context) (accepted int, err error) {
		accepted = -1
		for i, migration := range all {
			if err := in[i%2].Get(ctx, client.ObjectKeyFromObject(migration), migration); err != nil {
				return -1, err
			}
			if conditionsv1alpha1.IsTrue(migration, migrationv1alpha1.OriginReady) {
				if accepted >= 0 {
					t.Fatalf("%+v and %+v were accepted", all[accepted], migration)
				}
				accepted = i
			}
		}
		if accepted < 0 || all[accepted].Status.Phase != migrationv1alpha1.LogicalClusterMigrationPhaseMigrating {
			return -1, fmt.Errorf("none is in phase Migrating")
		}
		want := fmt.Sprintf("logical cluster is already migrating with \"%s:%s\"", logicalcluster.Of(all[accepted]), all[accepted].Name)
		for i, migration := range all {
			if i == accepted {
				continue
			}
			if reason, message := conditionsv1alpha1.GetReason(migration, migrationv1alpha1.OriginReady), conditionsv1alpha1.GetMessage(migration, migrationv1alpha1.OriginReady); migration.Status.Phase != migrationv1alpha1.LogicalClusterMigrationPhaseFailed ||
				reason != migrationv1alpha1.ReasonLogicalClusterAlreadyMigrating || message != want {
				return -1, fmt.Errorf("%s is %s, %s: %s; want the message %q", migration.Name, migration.Status.Phase, reason, message, want)
			}
		}
		return accepted, nil
	}
	accepted := -1
	shardtesting.EventuallyWithin(t, longWait, "one migration, and the failure of the others", func(ctx context.Context) (err error) {
		accepted, err = read(ctx)
		return err
	})
	put(t, c, "meanwhile")
	if err := in[accepted%2].Delete(t.Context(), all[accepted]); err != nil {
		t.Fatal(err)
	}
	shardtesting.EventuallyWithin(t, longWait, "the end of the migration", func(ctx context.Context) error {
		if err := in[accepted%2].Get(ctx, client.ObjectKeyFromObject(all[accepted]), all[accepted]); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it exists, or %w", err)
		}
		return nil
	})
	for i, migration := range all { // those that have failed begin nothing afterwards
		if i == accepted {
			continue
		}
		if err := in[i%2].Get(t.Context(), client.ObjectKeyFromObject(migration), migration); err != nil || migration.Status.Phase != migrationv1alpha1.LogicalClusterMigrationPhaseFailed {
			t.Errorf("%s is in phase %s: %v", migration.Name, migration.Status.Phase, err)
		}
	}
	e.moveTo(t, "contested", workspace, c, installation.Beta)
	e.deleteWorkspace(t, workspace)
}
