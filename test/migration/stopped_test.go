package migration

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/test/installation"
)

// waiting are moves that wait for a shard which does not run: beta is the destination of one workspace, and has the parent of the other one.
type waiting struct {
	*env
	patient, child     *tenancyv1alpha1.Workspace
	atPatient, atChild client.Client
	watched            startWatch
}

// newWaiting creates the workspaces. They are on alpha.
func (e *env) newWaiting(t *testing.T) *waiting {
	t.Helper()
	w := &waiting{env: e, child: &tenancyv1alpha1.Workspace{}}
	w.patient, w.atPatient = e.workspace(t, "patient", installation.Alpha)
	w.watched = e.watchFromStart(t, "root:patient")
	_, parent := e.workspace(t, "broken", installation.Beta)
	e.child(t, "root:broken", "child", installation.Alpha)
	if err := parent.Get(t.Context(), client.ObjectKey{Name: "child"}, w.child); err != nil {
		t.Fatal(err)
	}
	w.atChild = e.at(t, w.child.Spec.Cluster)
	put(t, w.atChild, "before") // its client discovers the API while the path of the parent resolves
	return w
}

// move begins the moves while beta does not run. Each says what it waits for; writes are accepted, and a watch stays open.
func (w *waiting) move(t *testing.T) {
	t.Helper()
	w.env.move(t, "patient", w.patient.Spec.Cluster, installation.Beta)
	w.env.move(t, "child", w.child.Spec.Cluster, installation.Root)
	migration := w.waitReason(t, "patient", migrationv1alpha1.DataCopied, migrationv1alpha1.ReasonWaitingForDestination)
	if message := conditionsv1alpha1.GetMessage(migration, migrationv1alpha1.DataCopied); migration.Status.Phase != migrationv1alpha1.LogicalClusterMigrationPhaseMigrating ||
		!conditionsv1alpha1.IsTrue(migration, migrationv1alpha1.OriginReady) || !strings.Contains(message, `shard "beta" has not begun to copy`) || !strings.Contains(message, "does not run") {
		t.Errorf("status %+v", migration.Status)
	}
	migration = w.waitReason(t, "child", migrationv1alpha1.PlacementAllowed, migrationv1alpha1.ReasonWaitingForWorkspaceShard)
	if message := conditionsv1alpha1.GetMessage(migration, migrationv1alpha1.PlacementAllowed); migration.Status.Phase != migrationv1alpha1.LogicalClusterMigrationPhaseMigrating ||
		!strings.Contains(message, `shard "beta", which has the Workspace, has not decided`) {
		t.Errorf("status %+v", migration.Status)
	}
	w.watched.expect(t, put(t, w.atPatient, "meanwhile"))
	put(t, w.atChild, "meanwhile")
}

// check waits until the moves have ended after beta has started again.
func (w *waiting) check(t *testing.T) {
	t.Helper()
	for name, c := range map[string]client.Client{"patient": w.atPatient, "child": w.atChild} {
		w.waitPhase(t, name, migrationv1alpha1.LogicalClusterMigrationPhaseCompleted)
		put(t, c, "later")
	}
	w.checkShards(t, func(yield func(string, string) bool) {
		_ = yield(w.patient.Spec.Cluster, installation.Beta) && yield(w.child.Spec.Cluster, installation.Root)
	})
}
