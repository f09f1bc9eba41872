package migration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/sharded"
)

// Servers by their role in a move; the shards swap theirs each time.
const (
	origin      = "the origin"
	destination = "the destination"
)

// moment is when a server is killed, after a migration was created.
type moment struct {
	name string
	wait func(e *env, t *testing.T, h *history, migration string)
}

// at is the moment at which a migration has reached a phase.
func at(phase migrationv1alpha1.LogicalClusterMigrationPhaseType) moment {
	return moment{"in phase " + string(phase), func(e *env, t *testing.T, _ *history, migration string) {
		e.waitStatus(t, migration, "phase "+string(phase), func(status migrationv1alpha1.LogicalClusterMigrationStatus) bool {
			return order(status.Phase) >= order(phase)
		})
	}}
}

// refused is the moment at which the origin refuses a write, which may be over when the server is killed. If no write comes in time, it is the
// phase that follows.
var refused = moment{"while writes are refused", func(e *env, t *testing.T, h *history, migration string) {
	before := h.refusals()
	e.waitStatus(t, migration, "refused writes", func(status migrationv1alpha1.LogicalClusterMigrationStatus) bool {
		return h.refusals() > before || order(status.Phase) >= order(migrationv1alpha1.LogicalClusterMigrationPhaseOriginCleanup)
	})
}}

// after is a moment that no status tells.
func after(delay time.Duration) moment {
	return moment{"after " + delay.String(), func(*env, *testing.T, *history, string) { time.Sleep(delay) }}
}

// order returns the place of a phase in the course of a move.
func order(phase migrationv1alpha1.LogicalClusterMigrationPhaseType) int {
	for i, p := range []migrationv1alpha1.LogicalClusterMigrationPhaseType{
		migrationv1alpha1.LogicalClusterMigrationPhasePreparing, migrationv1alpha1.LogicalClusterMigrationPhaseMigrating,
		migrationv1alpha1.LogicalClusterMigrationPhaseOriginCleanup, migrationv1alpha1.LogicalClusterMigrationPhaseDestinationFinalize,
		migrationv1alpha1.LogicalClusterMigrationPhaseCompleted,
	} {
		if p == phase {
			return i
		}
	}
	return -1
}

// TestMoveFaults kills one server after the other while a workspace moves to and fro, and clients write. Each move ends by itself, and no
// acknowledged write is lost, whichever shard acknowledged it.
func TestMoveFaults(t *testing.T) {
	e := start(t)
	// Before the moves: what these leave in the etcd of the destination would count. It is no subtest, which would end the shard that it restarts.
	e.testFullDestination(t)
	workspace, c := e.workspace(t, "faulty", installation.Alpha)
	for i := range 200 {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprint("content-", i)}, Data: map[string]string{"text": strings.Repeat("x", 2<<10)}}
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	h := e.observe(t, "root:faulty", workspace.Spec.Cluster)
	from, to := installation.Alpha, installation.Beta
	for n, fault := range faults() {
		server := fault.server
		switch server {
		case origin:
			server = from
		case destination:
			server = to
		}
		name := fmt.Sprint("fault-", n)
		e.move(t, name, workspace.Spec.Cluster, to)
		fault.moment.wait(e, t, h, name)
		e.Kill(t, server)
		e.Restart(t, server)
		e.WaitReady(t, server)
		status := e.waitStatus(t, name, "end", func(status migrationv1alpha1.LogicalClusterMigrationStatus) bool {
			return status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseCompleted || status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseFailed
		})
		t.Logf("%s (%s) was killed %s: %s", fault.server, server, fault.moment.name, status.Phase)
		h.check(t, c)
		if status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseCompleted {
			from, to = to, from
		}
		if t.Failed() {
			return
		}
	}
	h.stop()
	e.deleteWorkspace(t, workspace)
	e.testRestoredOrigin(t)
}

// fault is a server that is killed at a moment.
type fault struct {
	server string
	moment moment
}

// faults returns a few for CI; with ATOLL_FAULTS=full twenty for each server.
func faults() []fault {
	if os.Getenv("ATOLL_FAULTS") != "full" {
		return []fault{
			{origin, refused},
			{destination, at(migrationv1alpha1.LogicalClusterMigrationPhaseMigrating)},
			{destination, refused},
			{installation.Root, at(migrationv1alpha1.LogicalClusterMigrationPhaseOriginCleanup)},
			{sharded.CacheServer, at(migrationv1alpha1.LogicalClusterMigrationPhaseMigrating)},
			{sharded.FrontProxy, refused},
		}
	}
	var all []fault
	for range 20 {
		for _, server := range []string{origin, destination, installation.Root, sharded.CacheServer, sharded.FrontProxy} {
			all = append(all, fault{server, after(rand.N(4 * time.Second))})
		}
	}
	return all
}

// waitStatus waits for a status of a migration. It tolerates all errors: the server that would answer may be starting.
func (e *env) waitStatus(t *testing.T, name, what string, wanted func(migrationv1alpha1.LogicalClusterMigrationStatus) bool) migrationv1alpha1.LogicalClusterMigrationStatus {
	t.Helper()
	migration := &migrationv1alpha1.LogicalClusterMigration{}
	shardtesting.EventuallyWithin(t, 2*time.Minute, fmt.Sprintf("%s of migration %s", what, name), func(ctx context.Context) error {
		if err := e.operations.Get(ctx, client.ObjectKey{Name: name}, migration); err != nil {
			return err
		}
		if !wanted(migration.Status) {
			return fmt.Errorf("status %+v", migration.Status)
		}
		return nil
	})
	return migration.Status
}
