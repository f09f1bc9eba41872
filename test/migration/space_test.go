package migration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/test/installation"
)

const (
	// smallQuota is a quota of etcd that a shard without content does not reach, and that the objects exceed. One part of a copy, and one object
	// even more, for which etcd needs free pages in a row, are small in comparison.
	smallQuota  = 48 << 20
	objectBytes = 96 << 10
	objectCount = 450
)

// testFullDestination moves a workspace to a shard whose etcd is too small for it. The move fails before etcd refuses writes, and leaves the
// workspace where it is and nothing on the other shard; with more space it moves.
func (e *env) testFullDestination(t *testing.T) {
	restart := func(more ...string) {
		t.Helper()
		e.Kill(t, installation.Beta)
		e.Restart(t, installation.Beta, more...)
		e.WaitReady(t, installation.Beta)
	}
	workspace, c := e.workspace(t, "large", installation.Alpha)
	waiting := e.newWaiting(t)
	var objects []*corev1.ConfigMap
	for i := range objectCount {
		object := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprint("large-", i)},
			Data:       map[string]string{"name": fmt.Sprint("large-", i), "text": strings.Repeat("x", objectBytes)},
		}
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
	restart(fmt.Sprint("--embedded-etcd-quota-backend-bytes=", smallQuota))
	e.move(t, "large", workspace.Spec.Cluster, installation.Beta)
	migration := e.waitPhase(t, "large", migrationv1alpha1.LogicalClusterMigrationPhaseFailed)
	if reason, message := conditionsv1alpha1.GetReason(migration, migrationv1alpha1.DataCopied), conditionsv1alpha1.GetMessage(migration, migrationv1alpha1.DataCopied); reason != migrationv1alpha1.ReasonDestinationFull ||
		!strings.Contains(message, "percent of its quota of 48Mi") || !strings.Contains(message, "free space there, or move to another shard") || migration.Status.EntriesCopied == 0 {
		t.Errorf("%d entries were copied, %s: %s", migration.Status.EntriesCopied, reason, message)
	}
	for _, condition := range []conditionsv1alpha1.Type{migrationv1alpha1.Aborted, migrationv1alpha1.OriginCleaned, migrationv1alpha1.DestinationCleaned} {
		if !conditionsv1alpha1.IsTrue(migration, condition) {
			t.Errorf("condition %s is not True: %+v", condition, migration.Status.Conditions)
		}
	}
	cluster := logicalcluster.MustParseName(workspace.Spec.Cluster)
	if left := e.objectsOn(t, installation.Beta, []logicalcluster.Name{cluster})[cluster.String()]; left != 0 {
		t.Errorf("%d keys of the copy are left", left)
	}
	objects = append(objects, put(t, c, "meanwhile"))
	checkObjects(t, c, objects)

	e.Kill(t, installation.Beta)
	waiting.move(t)
	e.Restart(t, installation.Beta)
	e.WaitReady(t, installation.Beta)
	waiting.check(t)
	e.moveTo(t, "large-again", workspace, c, installation.Beta)
	checkObjects(t, c, append(objects, put(t, c, "later")))
	e.testDeletionDuringCopy(t, workspace)
}

// testDeletionDuringCopy deletes a workspace while its objects are copied. The migration ends, and no shard has anything of it.
func (e *env) testDeletionDuringCopy(t *testing.T, workspace *tenancyv1alpha1.Workspace) {
	t.Helper()
	const name = "large-deleted"
	e.move(t, name, workspace.Spec.Cluster, installation.Alpha)
	e.waitStatus(t, name, "begin of the copy", func(status migrationv1alpha1.LogicalClusterMigrationStatus) bool {
		return status.EntriesCopied > 0 || status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseCompleted
	})
	e.deleteWorkspace(t, workspace)
	status := e.waitStatus(t, name, "end", func(status migrationv1alpha1.LogicalClusterMigrationStatus) bool {
		return status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseCompleted || status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseFailed
	})
	t.Logf("the workspace was deleted during the copy: %s after %d entries", status.Phase, status.EntriesCopied)
	e.waitNoKeys(t, workspace.Spec.Cluster)
}
