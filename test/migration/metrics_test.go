package migration

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// Metrics of moves.
const (
	movesCompleted = `atoll_logicalcluster_migrations_total{result="completed"}`
	movesRunning   = `atoll_logicalcluster_migrations_active{state="running"}`
	pauses         = `atoll_logicalcluster_migration_refused_writes_seconds_count`
	pausedSeconds  = `atoll_logicalcluster_migration_refused_writes_seconds_sum`
	copiedBytes    = `atoll_logicalcluster_migration_copied_bytes_total`
)

// measure returns a function that checks what the shards have measured since, in which one workspace has moved, and nobody has written.
func (e *env) measure(t *testing.T, cluster, from, to string) (check func(migrationv1alpha1.LogicalClusterMigrationStatus)) {
	t.Helper()
	moving := []logicalcluster.Name{logicalcluster.MustParseName(cluster)}
	objects := e.objectsOn(t, from, moving)[cluster]
	completed, copied := e.metric(t, installation.Root, movesCompleted), e.metric(t, to, copiedBytes)
	count, seconds := e.metric(t, to, pauses), e.metric(t, to, pausedSeconds)
	return func(status migrationv1alpha1.LogicalClusterMigrationStatus) {
		t.Helper()
		// The LogicalCluster is handed over, and no copy. Controllers may create objects meanwhile.
		if after := e.objectsOn(t, to, moving)[cluster]; status.EntriesCopied+1 < objects || status.EntriesCopied+1 > after {
			t.Errorf("%d entries were copied of %d objects before the move and %d after it", status.EntriesCopied, objects, after)
		}
		if got := e.metric(t, installation.Root, movesCompleted) - completed; got != 1 {
			t.Errorf("%v moves are counted as completed, want 1", got)
		}
		if got := e.metric(t, to, copiedBytes) - copied; got < 100*float64(objects) {
			t.Errorf("%v bytes of %d objects are counted as copied", got, objects)
		}
		if n, took := e.metric(t, to, pauses)-count, e.metric(t, to, pausedSeconds)-seconds; n < 1 || took <= 0 {
			t.Errorf("%v pauses are counted, which took %v s", n, took)
		}
		shardtesting.Eventually(t, "no active migration", func(context.Context) error {
			if running := e.metric(t, installation.Root, movesRunning); running != 0 {
				return fmt.Errorf("%v are running", running)
			}
			return nil
		})
	}
}

// metrics returns the metrics of a server.
func (e *env) metrics(t *testing.T, server string) string {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(e.Masters(t, server))
	if err != nil {
		t.Fatal(err)
	}
	text, err := clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// metric returns the value of a series of a server; 0 if it has none.
func (e *env) metric(t *testing.T, server, series string) float64 {
	t.Helper()
	for line := range strings.Lines(e.metrics(t, server)) {
		if value, found := strings.CutPrefix(line, series+" "); found {
			parsed, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return parsed
		}
	}
	return 0
}
