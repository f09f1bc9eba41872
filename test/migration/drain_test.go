package migration

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/drain"
	"github.com/atoll-dev/atoll/plugin"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/kcp"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// output collects what a command prints, and calls stop when it contains a text.
type output struct {
	bytes.Buffer
	until string
	stop  context.CancelFunc
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Buffer.Write(p)
	if o.until != "" && strings.Contains(o.String(), o.until) {
		o.stop()
	}
	return n, err
}

// kubectl runs "kubectl kcp" with the words of a line, as the administrator, and returns what it prints. It is interrupted when that
// contains until.
func (e *env) kubectl(t *testing.T, line, until string) (string, error) {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	installation.WriteKubeconfig(t, e.Admin(t, "root"), kubeconfig)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &output{until: until, stop: cancel}
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: out}
	cmd := plugin.NewRootCommand("kubectl kcp", connection.NewFlags(streams), kcp.NewCommand)
	cmd.SilenceErrors = true
	cmd.SetArgs(append(strings.Fields(line), "--kubeconfig", kubeconfig))
	err := cmd.ExecuteContext(ctx)
	t.Logf("kubectl kcp %s: %v\n%s", line, err, out)
	return out.String(), err
}

// expect runs a command, and fails unless it succeeds and prints a text.
func (e *env) expect(t *testing.T, line, text string) {
	t.Helper()
	if out, err := e.kubectl(t, line, ""); err != nil || !strings.Contains(out, text) {
		t.Fatalf("kubectl kcp %s: %v; want %q", line, err, text)
	}
}

// drainMigrations returns the migrations of drains.
func (e *env) drainMigrations(t *testing.T) []migrationv1alpha1.LogicalClusterMigration {
	t.Helper()
	var list migrationv1alpha1.LogicalClusterMigrationList
	if err := e.at(t, "root").List(t.Context(), &list, client.HasLabels{drain.Label}); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// on returns the workspaces below root that are on a shard.
func (e *env) on(t *testing.T, shard string) []tenancyv1alpha1.Workspace {
	t.Helper()
	var list, on tenancyv1alpha1.WorkspaceList
	if err := e.at(t, "root").List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	for _, workspace := range list.Items {
		if workspace.Annotations[corev1alpha1.ShardAnnotationKey] == shard {
			on.Items = append(on.Items, workspace)
		}
	}
	return on.Items
}

// testDrain drains alpha, which has workspaces of other tests that select it.
func (e *env) testDrain(t *testing.T) {
	e.expect(t, "cordon root", `Shard "root" is closed for new workspaces.`)
	e.expect(t, "cordon beta", `Shard "beta" is closed for new workspaces.`)
	var objects []*corev1.ConfigMap
	var paths []string
	for _, path := range []string{"drained-0", "drained-1", "drained-2", "drained-3", "drained-0:child"} {
		parent, name := "root", path
		if above, below, ok := strings.Cut(path, ":"); ok {
			parent, name = "root:"+above, below
		}
		shardtesting.NewWorkspace(t, e.at(t, "root"), parent, name)
		paths = append(paths, "root:"+path)
		shardtesting.Eventually(t, "the namespace of "+path, func(ctx context.Context) error {
			return e.at(t, "root:"+path).Get(ctx, client.ObjectKey{Name: "default"}, &corev1.Namespace{})
		})
		objects = append(objects, put(t, e.at(t, "root:"+path), "of-"+name))
	}
	before := len(e.on(t, installation.Alpha))
	e.expect(t, "uncordon root", `Shard "root" is open for new workspaces.`)
	e.expect(t, "uncordon beta", `Shard "beta" is open for new workspaces.`)

	if _, err := e.kubectl(t, "drain nowhere", ""); err == nil || !strings.Contains(err.Error(), `the installation has no shard "nowhere"`) {
		t.Errorf("an unknown shard: %v", err)
	}
	e.expect(t, "drain alpha --wait=false --max-concurrent 1", "Repeat the command to go on.")
	if begun := e.drainMigrations(t); len(begun) != 1 {
		t.Errorf("%d migrations have begun, want 1", len(begun))
	}
	if out, err := e.kubectl(t, "drain alpha --max-concurrent 1", " of "); err == nil {
		t.Errorf("the interrupted command has succeeded: %s", out)
	}
	out, err := e.kubectl(t, "drain alpha", "")
	if err == nil || !strings.Contains(out, "root:tenant stays: no other shard has the labels that its spec.location.selector demands (name=alpha)") {
		t.Fatalf("got %v; want the refused workspaces", err)
	}
	left := e.on(t, installation.Alpha)
	if len(left) != before-4 {
		t.Errorf("%d of %d workspaces are left on the shard, want all but four", len(left), before)
	}
	if want := fmt.Sprintf("5 of %d moved", len(left)+5); !strings.Contains(out, want) {
		t.Errorf("want %q", want)
	}
	for i, path := range paths {
		checkObjects(t, e.at(t, path), objects[i:i+1])
		cluster := &corev1alpha1.LogicalCluster{}
		if err := e.at(t, path).Get(t.Context(), client.ObjectKey{Name: corev1alpha1.LogicalClusterName}, cluster); err != nil {
			t.Fatal(err)
		}
		if shard := cluster.Annotations[corev1alpha1.ShardAnnotationKey]; shard != installation.Root && shard != installation.Beta {
			t.Errorf("%s is on %s", path, shard)
		}
	}

	for i := range left {
		e.deleteWorkspace(t, &left[i])
	}
	e.expect(t, "drain alpha", `Shard "alpha" is drained`)
	if kept := e.drainMigrations(t); len(kept) > 0 {
		t.Errorf("%d migrations are left after the end", len(kept))
	}

	// A drain that is stopped leaves no migration, and a workspace that can be used wherever it is.
	e.expect(t, "drain beta --wait=false", "moving")
	if out, err := e.kubectl(t, "drain beta --stop", ""); err != nil || !strings.Contains(out, `"kubectl kcp uncordon beta" opens it`) {
		t.Fatalf("stop: %v", err)
	}
	if kept := e.drainMigrations(t); len(kept) > 0 {
		t.Errorf("%d migrations are left after the stop", len(kept))
	}
	for i, path := range paths {
		put(t, e.at(t, path), "later")
		checkObjects(t, e.at(t, path), objects[i:i+1])
	}
	e.expect(t, "uncordon alpha", "is open")
	e.expect(t, "uncordon beta", "is open")
}
