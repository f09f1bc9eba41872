package plugins

import (
	"strings"
	"testing"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// moveGate enables moves on every shard of the installation.
const moveGate = "--feature-gates=LogicalClusterMigration=true"

// contains fails the test unless a text contains all parts, in this order.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Errorf("%q is not in its place in:\n%s", part, text)
			return
		}
		rest = after
	}
}

func testMove(t *testing.T, i *installation.Installation) {
	i.NewWorkspace(t, "relocated", "mover", shardtesting.OnShard(installation.Alpha))
	u := newUser(t, i, i.Admin(t, "root"))
	u.create("child -w :root:relocated --location-selector name=" + installation.Root)

	for line, want := range map[string]string{
		"move":                             "name one workspace to move: a name, or a path such as :root:org:team",
		"move relocated":                   "name the destination with --to; kubectl get shards in :root lists the shards",
		"move relocated --to beta --abort": "--abort cannot be combined with --to or --include-children",
		"move relocated --to b --wait=false --timeout 1s": "--timeout has no effect with --wait=false",
		"move missing --to beta":                          `workspace "root:missing" not found`,
		"move :root --to beta":                            "the root workspace belongs to the root shard, and cannot be moved",
		"move relocated --abort":                          `workspace "root:relocated" is not being moved by a LogicalClusterMigration in root`,
	} {
		u.expect(u.kcp(line), commandOutput{err: want})
	}

	// To a shard that does not exist the move waits, and can be followed, joined and given up.
	got := u.kcp("move relocated --to nowhere --timeout 5s")
	contains(t, got.out, `Moving workspace "root:relocated" to shard "nowhere": LogicalClusterMigration "relocated-`, "Migrating: 0 objects copied", `there is no shard "nowhere"`)
	contains(t, got.err, "the move has not ended after 5s", `there is no shard "nowhere"`, "kubectl kcp move :root:relocated --to nowhere. To give up: kubectl kcp move :root:relocated --abort")
	contains(t, u.kcp("move :root:relocated --to nowhere --wait=false").out, "is being moved to shard \"nowhere\" already")
	contains(t, u.kcp("move :root:relocated --to beta").err, `is being moved to shard "nowhere": wait, or give up with: kubectl kcp move :root:relocated --abort`)
	got = u.kcp("move relocated --abort")
	contains(t, got.out, "is being deleted", `The move is given up. Workspace "root:relocated" stays on its shard.`)
	if got.err != "" {
		t.Errorf("aborting returns %q", got.err)
	}

	got = u.kcp("move relocated --to beta --include-children")
	contains(t, got.out, "Moving workspace", "Completed: ", `Workspace "root:relocated" is on shard "beta".`)
	if got.err != "" {
		t.Errorf("moving returns %q", got.err)
	}
	for _, path := range []string{":root:relocated", ":root:relocated:child"} { // where it is already
		got = u.kcp("move " + path + " --to beta")
		contains(t, got.err, "has failed: the logical cluster is on shard \"beta\" already", "LogicalClusterNotMovable")
	}

	tenant := newUser(t, i, i.User(t, "root:relocated", "mover"))
	contains(t, tenant.kcp("move . --to alpha").err, "forbidden")
}
