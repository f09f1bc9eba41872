package migration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/shardcompare"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// restoredDifferences are Workspaces and logical clusters that change on the other shards between the backup of shard alpha and its restore.
type restoredDifferences struct {
	// deleted is a Workspace of root whose logical cluster on alpha was deleted since, created one that was created since.
	deleted, created *tenancyv1alpha1.Workspace
	// parent is a workspace on alpha, in which the Workspace of a logical cluster on beta was created since.
	parent, child *tenancyv1alpha1.Workspace
	restored      time.Time
}

// changeAfterBackup changes what differs after the restore.
func (d *restoredDifferences) changeAfterBackup(t *testing.T, e *env) {
	t.Helper()
	e.deleteWorkspace(t, d.deleted)
	d.created, _ = e.workspace(t, "restore-created", installation.Alpha)
	e.child(t, "root:"+d.parent.Name, "restore-child", installation.Beta)
	d.child = &tenancyv1alpha1.Workspace{}
	if err := e.at(t, "root:"+d.parent.Name).Get(t.Context(), client.ObjectKey{Name: "restore-child"}, d.child); err != nil {
		t.Fatal(err)
	}
}

// check compares the shards as the operator does, and looks for what a shard that is not released must not have deleted.
// moved has moved to beta with its child since the backup.
func (d *restoredDifferences) check(t *testing.T, e *env, moved *tenancyv1alpha1.Workspace) {
	t.Helper()
	export := &apisv1alpha2.APIExport{}
	if err := e.at(t, "root").Get(t.Context(), client.ObjectKey{Name: tenancyv1alpha1.SchemeGroupVersion.Group}, export); err != nil {
		t.Fatal(err)
	}
	var shards []shardcompare.Shard
	for _, name := range []string{installation.Root, installation.Alpha, installation.Beta} {
		config := rest.CopyConfig(e.Masters(t, name))
		config.Host += logicalcluster.Wildcard.Path().URLPath()
		c, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		shards = append(shards, shardcompare.Shard{Name: name, Client: c})
	}
	shardtesting.EventuallyWithin(t, longWait, "what differs", func(ctx context.Context) error {
		found, err := shardcompare.Compare(ctx, shards, export.Status.IdentityHash, installation.Alpha, d.restored)
		if err != nil {
			return err
		}
		has := func(names []string, workspace *tenancyv1alpha1.Workspace) bool {
			return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, workspace.Spec.Cluster) })
		}
		if !has(found.Gaps, d.created) || !has(found.Orphans, d.deleted) || !has(found.Orphans, d.child) || len(found.Gaps) != 1 || len(found.Orphans) != 2 || !has(found.Doubles, moved) || len(found.Doubles) != 2 {
			return fmt.Errorf("got %+v", found)
		}
		return nil
	})
	e.checkLogicalCluster(t, installation.Alpha, d.deleted.Spec.Cluster)
	e.checkLogicalCluster(t, installation.Beta, d.child.Spec.Cluster)
	if err := e.at(t, "root").Get(t.Context(), client.ObjectKeyFromObject(d.created), &tenancyv1alpha1.Workspace{}); err != nil {
		t.Errorf("the Workspace of a lost logical cluster: %v", err)
	}
}

// checkReleased looks for what the release must not delete, either: logical clusters that were ready are reported to nobody, so that no shard notices that it
// has no Workspace of them. The Workspace whose logical cluster was lost can be deleted.
func (d *restoredDifferences) checkReleased(t *testing.T, e *env) {
	t.Helper()
	e.deleteWorkspace(t, d.created)
	e.checkLogicalCluster(t, installation.Alpha, d.deleted.Spec.Cluster)
	e.checkLogicalCluster(t, installation.Beta, d.child.Spec.Cluster)
}

func (e *env) logicalClusters(t *testing.T, shard, cluster string) client.Client {
	t.Helper()
	c, err := client.New(shardtesting.At(e.Masters(t, shard), cluster), client.Options{Scheme: loopback.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (e *env) checkLogicalCluster(t *testing.T, shard, cluster string) {
	t.Helper()
	object := &corev1alpha1.LogicalCluster{}
	if err := e.logicalClusters(t, shard, cluster).Get(t.Context(), client.ObjectKey{Name: corev1alpha1.LogicalClusterName}, object); err != nil || object.DeletionTimestamp != nil {
		t.Errorf("logical cluster %s on shard %s: %v, deleted at %v", cluster, shard, err, object.DeletionTimestamp)
	}
}
