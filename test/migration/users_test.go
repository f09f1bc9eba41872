package migration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// waitReason waits until a condition of a migration is False for a reason.
func (e *env) waitReason(t *testing.T, name string, condition conditionsv1alpha1.Type, reason string) *migrationv1alpha1.LogicalClusterMigration {
	t.Helper()
	migration := &migrationv1alpha1.LogicalClusterMigration{}
	shardtesting.Eventually(t, fmt.Sprintf("reason %s of %s of migration %s", reason, condition, name), func(ctx context.Context) error {
		if err := e.operations.Get(ctx, client.ObjectKey{Name: name}, migration); err != nil {
			return err
		}
		if !conditionsv1alpha1.IsFalse(migration, condition) || conditionsv1alpha1.GetReason(migration, condition) != reason {
			return fmt.Errorf("status %+v", migration.Status)
		}
		return nil
	})
	return migration
}

// eventsOf returns the reasons of the events of a migration, in their order.
func (e *env) eventsOf(ctx context.Context, name string) ([]string, error) {
	list := &corev1.EventList{}
	if err := e.operations.List(ctx, list, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return nil, err
	}
	var reasons []string
	for _, one := range list.Items {
		if one.InvolvedObject.Name == name {
			reasons = append(reasons, one.Reason)
		}
	}
	slices.Sort(reasons)
	return reasons, nil
}

// testPlacement moves a workspace whose selector and destination do not fit, until both do. The cordoned shard is the one of
// the Workspace, alpha is neither origin nor destination.
func testPlacement(t *testing.T, e *env) {
	e.NewWorkspace(t, "placed", "tenant", shardtesting.OnShard(installation.Alpha), func(w *tenancyv1alpha1.Workspace) {
		w.Spec.Location.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "region", Operator: metav1.LabelSelectorOpDoesNotExist}}
	})
	root := e.at(t, "root")
	workspace := &tenancyv1alpha1.Workspace{}
	if err := root.Get(t.Context(), client.ObjectKey{Name: "placed"}, workspace); err != nil {
		t.Fatal(err)
	}
	workspace.Spec.Location.Selector.MatchExpressions[0].Operator = metav1.LabelSelectorOpExists
	if err := root.Update(t.Context(), workspace); err != nil {
		t.Fatal(err)
	}
	cordon := func(annotation string) {
		t.Helper()
		config := e.Admin(t, "root")
		config.Host = e.URL + "/services/admin"
		admin, err := client.New(config, client.Options{Scheme: loopback.Scheme})
		if err != nil {
			t.Fatal(err)
		}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, corev1alpha1.UnschedulableAnnotationKey, annotation)
		shard := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: installation.Beta}}
		if err := admin.Patch(t.Context(), shard, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	cordon(`"true"`) // the shard of the Workspace knows this before the migration ignores the selector
	e.move(t, "placed", workspace.Spec.Cluster, installation.Beta)
	migration := e.waitReason(t, "placed", migrationv1alpha1.PlacementAllowed, migrationv1alpha1.ReasonSelectorMismatch)
	if migration.Status.Phase != migrationv1alpha1.LogicalClusterMigrationPhaseMigrating || !conditionsv1alpha1.IsTrue(migration, migrationv1alpha1.OriginReady) || migration.Status.EntriesCopied != 0 {
		t.Errorf("status %+v", migration.Status)
	}
	put(t, e.at(t, "root:placed"), "meanwhile") // a refusal pauses nothing

	ignore := func(annotation, reason string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, migrationv1alpha1.IgnoreSelectorAnnotationKey, annotation)
		if err := e.operations.Patch(t.Context(), migration, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
		migration = e.waitReason(t, "placed", migrationv1alpha1.PlacementAllowed, reason)
	}
	ignore(`"true"`, migrationv1alpha1.ReasonShardNotSchedulable)
	ignore("null", migrationv1alpha1.ReasonSelectorMismatch)
	if err := root.Get(t.Context(), client.ObjectKey{Name: "placed"}, workspace); err != nil {
		t.Fatal(err)
	}
	workspace.Spec.Location.Selector.MatchExpressions = nil
	if err := root.Update(t.Context(), workspace); err != nil {
		t.Fatal(err)
	}
	e.waitReason(t, "placed", migrationv1alpha1.PlacementAllowed, migrationv1alpha1.ReasonShardNotSchedulable)
	cordon("null")
	migration = e.waitPhase(t, "placed", migrationv1alpha1.LogicalClusterMigrationPhaseCompleted)
	if !conditionsv1alpha1.IsTrue(migration, migrationv1alpha1.PlacementAllowed) {
		t.Errorf("conditions %+v", migration.Status.Conditions)
	}
	shardtesting.Eventually(t, "the events of the migration", func(ctx context.Context) error {
		got, err := e.eventsOf(ctx, "placed")
		if want := "Completed HandedOver PlacementRefused PlacementRefused PlacementRefused PlacementRefused Started"; err == nil && strings.Join(got, " ") != want {
			err = fmt.Errorf("got %v, want %s", got, want)
		}
		return err
	})
	e.deleteWorkspace(t, workspace)
}

// child creates a workspace in another one.
func (e *env) child(t *testing.T, parent, name, shard string) {
	t.Helper()
	c := e.at(t, parent)
	shardtesting.Eventually(t, "access to "+parent, func(ctx context.Context) error { return c.List(ctx, &tenancyv1alpha1.WorkspaceList{}) })
	shardtesting.NewWorkspace(t, c, installation.Root, name, shardtesting.OnShard(shard)) // the address of c decides where
}

// testParent moves a workspace whose children stay: one that was on the same shard, and one on another shard. Both can be
// used, moved and deleted by their Workspaces, which are on the other shard then.
func testParent(t *testing.T, e *env) {
	workspace, c := e.workspace(t, "family", installation.Alpha)
	e.child(t, "root:family", "stays", installation.Alpha)
	e.child(t, "root:family", "moves", installation.Root)
	limitWorkspaces(t, c, 2)
	e.moveTo(t, "family", workspace, c, installation.Beta)
	put(t, e.at(t, "root:family:stays"), "later")
	expectWorkspaces(t, c, 2)

	moving := &tenancyv1alpha1.Workspace{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "moves"}, moving); err != nil {
		t.Fatal(err)
	}
	e.move(t, "family-child", moving.Spec.Cluster, installation.Alpha)
	e.waitPhase(t, "family-child", migrationv1alpha1.LogicalClusterMigrationPhaseCompleted)
	put(t, e.at(t, "root:family:moves"), "later")
	if err := c.Get(t.Context(), client.ObjectKey{Name: "moves"}, moving); err != nil || moving.Annotations[corev1alpha1.ShardAnnotationKey] != installation.Alpha {
		t.Errorf("the workspace is on shard %q (%v)", moving.Annotations[corev1alpha1.ShardAnnotationKey], err)
	}
	expectWorkspaces(t, c, 2)
	e.deleteWorkspace(t, workspace) // with its children
}

// limitWorkspaces limits the workspaces below that of a client to as many as there are.
func limitWorkspaces(t *testing.T, c client.Client, limit int) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"core.kcp.io/max-descendant-workspaces":"%d"}}}`, limit)
	cluster := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName}}
	if err := c.Patch(t.Context(), cluster, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	expectWorkspaces(t, c, limit)
}

// expectWorkspaces waits until as many workspaces as allowed are counted, and checks that another one is refused.
func expectWorkspaces(t *testing.T, c client.Client, limit int) {
	t.Helper()
	want := fmt.Sprintf("%d of %d workspaces in it and below", limit, limit)
	shardtesting.Eventually(t, want, func(ctx context.Context) error {
		cluster := &corev1alpha1.LogicalCluster{}
		if err := c.Get(ctx, client.ObjectKey{Name: corev1alpha1.LogicalClusterName}, cluster); err != nil {
			return err
		}
		if got := conditionsv1alpha1.GetMessage(cluster, corev1alpha1.WorkspacesWithinLimits); got != want {
			return fmt.Errorf("the condition is %q", got)
		}
		if err := c.Create(ctx, &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "beyond"}}, client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("another workspace: %v", err)
		}
		return nil
	})
}

// testChildren moves a tree whose workspaces are on all shards: what is on the destination stays, what is below it moves.
func testChildren(t *testing.T, e *env) {
	e.workspace(t, "tree", installation.Alpha)
	e.child(t, "root:tree", "a", installation.Beta)
	e.child(t, "root:tree:a", "b", installation.Alpha)
	e.child(t, "root:tree", "c", installation.Root)
	e.child(t, "root:tree", "d", installation.Alpha)
	workspace := &tenancyv1alpha1.Workspace{}
	if err := e.at(t, "root").Get(t.Context(), client.ObjectKey{Name: "tree"}, workspace); err != nil {
		t.Fatal(err)
	}
	migrate := func(name, to string) {
		t.Helper()
		migration := &migrationv1alpha1.LogicalClusterMigration{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{migrationv1alpha1.IncludeChildrenAnnotationKey: "true"}},
			Spec:       migrationv1alpha1.LogicalClusterMigrationSpec{LogicalCluster: workspace.Spec.Cluster, DestinationShard: to},
		}
		if err := e.operations.Create(t.Context(), migration); err != nil {
			t.Fatal(err)
		}
	}
	migrate("tree", installation.Beta)
	migration := &migrationv1alpha1.LogicalClusterMigration{}
	shardtesting.EventuallyWithin(t, 3*time.Minute, "the end of the migration", func(ctx context.Context) error { // four moves
		if err := e.operations.Get(ctx, client.ObjectKey{Name: "tree"}, migration); err != nil {
			return err
		}
		if migration.Status.Phase != migrationv1alpha1.LogicalClusterMigrationPhaseCompleted {
			return fmt.Errorf("status %+v", migration.Status)
		}
		return nil
	})
	if !conditionsv1alpha1.IsTrue(migration, migrationv1alpha1.ChildrenMoved) {
		t.Errorf("conditions %+v", migration.Status.Conditions)
	}
	list := &migrationv1alpha1.LogicalClusterMigrationList{}
	if err := e.operations.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	children := 0
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], migration) {
			children++
		}
	}
	if children != 3 { // not root:tree:a, which is on the destination
		t.Errorf("%d migrations of children, want 3", children)
	}
	for _, path := range []string{"root:tree", "root:tree:a", "root:tree:a:b", "root:tree:c", "root:tree:d"} {
		cluster := &corev1alpha1.LogicalCluster{}
		if err := e.at(t, path).Get(t.Context(), client.ObjectKey{Name: corev1alpha1.LogicalClusterName}, cluster); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if got := cluster.Annotations[corev1alpha1.ShardAnnotationKey]; got != installation.Beta {
			t.Errorf("%s is on shard %q", path, got)
		}
	}

	// Another migration of the same tree has nothing to do, and ends. The records of children go with that of their parent.
	migrate("tree-again", installation.Beta)
	e.waitPhase(t, "tree-again", migrationv1alpha1.LogicalClusterMigrationPhaseCompleted)
	if err := e.operations.Delete(t.Context(), migration); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the deletion of the migrations of children", func(ctx context.Context) error {
		for i := range list.Items {
			if !metav1.IsControlledBy(&list.Items[i], migration) {
				continue
			}
			if err := e.operations.Get(ctx, client.ObjectKeyFromObject(&list.Items[i]), &migrationv1alpha1.LogicalClusterMigration{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s: %v", list.Items[i].Name, err)
			}
		}
		return nil
	})
}
