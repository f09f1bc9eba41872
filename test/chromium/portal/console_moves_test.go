package portal

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/chromium"
)

// move creates a migration in root.
func (e *env) move(t *testing.T, name, cluster, to string, annotations map[string]string) {
	t.Helper()
	if err := e.shard.Client(t, e.shard.Masters(t)).Create(shardtesting.In(t.Context(), "root"), &migrationv1alpha1.LogicalClusterMigration{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       migrationv1alpha1.LogicalClusterMigrationSpec{LogicalCluster: cluster, DestinationShard: to},
	}); err != nil {
		t.Fatal(err)
	}
}

// testConsoleMoves: the page of shards has what moves, live, with what it waits for.
func (e *env) testConsoleMoves(t *testing.T) {
	const shard = options.DefaultShardName
	cluster := e.shard.NewWorkspace(t, "root", "moved").Spec.Cluster
	page := e.openConsole(t, "operator-token", "shards")
	page.WaitTitle("Shards")
	page.WaitText("No workspace is moving to another shard.")
	page.WaitText("kubectl kcp move :root:org:team --to SHARD")
	page.WaitText("needs the feature gate LogicalClusterMigration")
	row := func(name, cell, text string) {
		t.Helper()
		page.Wait(fmt.Sprintf("%s of %s to be %q", cell, name, text), fmt.Sprintf("document.querySelector('[data-move=%q] [data-label=%q]')?.innerText.includes(%q)", name, cell, text))
	}

	e.move(t, "waits", cluster, "nowhere", nil)
	row("waits", "Phase", "Migrating")
	row("waits", "From", shard)
	row("waits", "To", "nowhere")
	row("waits", "Progress", "step 2 of 4, 0 objects copied")
	row("waits", "Message", `there is no shard "nowhere" in the installation: add it, or delete the migration`)
	e.move(t, "refused", cluster, shard, nil)
	row("refused", "Phase", "Failed")
	row("refused", "Message", "logical cluster is already migrating")
	page.WaitText("1 move running, 1 ended")

	// To where a workspace is, only those below it move.
	stays := e.shard.NewWorkspace(t, "root", "stays").Spec.Cluster
	e.move(t, "below", stays, shard, map[string]string{migrationv1alpha1.IncludeChildrenAnnotationKey: "true"})
	row("below", "Phase", "Completed")
	row("below", "Message", "The workspace is on "+shard)
	page.WaitText("with the workspaces below it")
	page.WaitText("Move below: Completed")
	page.Click(chromium.Named(stays))
	page.WaitTitle(stays)
	page.WaitText("Phase inside")
	page.Open(e.consoleAt("shards"))
	page.WaitTitle("Shards")
	page.WaitText("1 move running, 2 ended")
	page.Wait("the one that runs to be first", "document.querySelector('[data-move]').dataset.move === 'waits'")

	e.deleteMigrations(t, "waits", "refused", "below")
	page.WaitText("No workspace is moving to another shard.")
	e.quiet(t, page)

	page = e.openConsole(t, "victor-token", "shards")
	page.WaitTitle("Shards")
	page.WaitText("You may not list moves")
	page.WaitText("get, list and watch logicalclustermigrations.migration.kcp.io")
	e.quiet(t, page)

	// A server that does not have the kind at all answers like this, such as one of another version.
	e.door.answerLike("/clusters/root/apis/migration.kcp.io/v1alpha1/logicalclustermigrations", http.StatusNotFound, "404 page not found")
	t.Cleanup(func() { e.door.answerLike("", 0, "") })
	page = e.openConsole(t, "operator-token", "shards")
	page.WaitTitle("Shards")
	page.WaitText("The root shard does not serve moves of workspaces.")
	page.WaitText("--feature-gates=LogicalClusterMigration=true")
	page.WaitText("1 shard")
	e.quiet(t, page)
}

// deleteMigrations deletes migrations in root, and waits until they are gone.
func (e *env) deleteMigrations(t *testing.T, names ...string) {
	t.Helper()
	c := e.shard.Client(t, e.shard.Masters(t))
	for _, name := range names {
		migration := &migrationv1alpha1.LogicalClusterMigration{ObjectMeta: metav1.ObjectMeta{Name: name}}
		shardtesting.Eventually(t, name+" to be deleted", func(ctx context.Context) error {
			if err := c.Delete(shardtesting.In(ctx, "root"), migration); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is not gone: %v", err)
			}
			return nil
		})
	}
}
