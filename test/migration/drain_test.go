package migration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/drain"
	"github.com/atoll-dev/atoll/internal/moves"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/kcp"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// commandTimeout is how long a command may take. A drain that does not end is a failure with its output.
const commandTimeout = 2 * time.Minute

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
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
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

// pathOf returns the path of a logical cluster.
func (e *env) pathOf(t *testing.T, cluster string) string {
	t.Helper()
	path := ""
	shardtesting.Eventually(t, "the path of "+cluster, func(ctx context.Context) error {
		object := &corev1alpha1.LogicalCluster{}
		err := e.at(t, cluster).Get(ctx, client.ObjectKey{Name: corev1alpha1.LogicalClusterName}, object)
		path = ":" + object.Annotations[corev1alpha1.LogicalClusterPathAnnotationKey]
		return err
	})
	return path
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

// workspaceOn creates a workspace that selects no shard, while all shards but one are closed.
func (e *env) workspaceOn(t *testing.T, shard, parent, name string) {
	t.Helper()
	for _, other := range e.Shards() {
		if other != shard {
			e.expect(t, "cordon "+other, fmt.Sprintf("Shard %q is closed for new workspaces.", other))
		}
	}
	path, c := parent+":"+name, e.at(t, parent)
	shardtesting.Eventually(t, path+" on shard "+shard, func(ctx context.Context) error {
		workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		workspace.Spec.Type = &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: "root"}
		if err := c.Create(ctx, workspace); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, workspace); err != nil {
			return err
		}
		on := workspace.Annotations[corev1alpha1.ShardAnnotationKey]
		if on != "" && on != shard { // the shard of the parent has learned only now that others are closed
			return errors.Join(fmt.Errorf("it is on %s", on), c.Delete(ctx, workspace))
		}
		return e.at(t, path).Get(ctx, client.ObjectKey{Name: "default"}, &corev1.Namespace{})
	})
	for _, other := range e.Shards() {
		if other != shard {
			e.expect(t, "uncordon "+other, fmt.Sprintf("Shard %q is open for new workspaces.", other))
		}
	}
}

// operator returns a client like that of the operator, and a function that returns what is on a shard, which the operator reaches itself.
func (e *env) operator(t *testing.T) (moves.Client, func(context.Context, string) (moves.Inventory, error)) {
	t.Helper()
	dynamicFor := func(config *rest.Config, path string) (dynamic.Interface, error) {
		config = rest.CopyConfig(config)
		config.Host += path
		return dynamic.NewForConfig(config)
	}
	proxy := e.Admin(t, "root")
	proxy.Host = e.URL
	admin, err := dynamicFor(proxy, "/services/admin")
	if err != nil {
		t.Fatal(err)
	}
	client := moves.Client{Admin: admin, At: func(path logicalcluster.Path) (dynamic.Interface, error) { return dynamicFor(proxy, path.URLPath()) }}
	return client, func(ctx context.Context, shard string) (moves.Inventory, error) {
		all, err := dynamicFor(e.Masters(t, shard), logicalcluster.Wildcard.Path().URLPath())
		if err != nil {
			return moves.Inventory{}, err
		}
		return moves.List(ctx, all)
	}
}

// drainAsOperator drains a shard as the operator does.
func (e *env) drainAsOperator(t *testing.T, shard string) {
	t.Helper()
	client, inventory := e.operator(t)
	d := drain.Drain{
		Client: client, Shard: shard, Concurrency: 1, Inventory: func(ctx context.Context) (moves.Inventory, error) { return inventory(ctx, shard) },
	}
	if err := d.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the drain", func(ctx context.Context) error {
		progress, err := d.Step(ctx, time.Now())
		if err == nil && (!progress.IsDone() || progress.System == 0) {
			err = fmt.Errorf("%s, %d of the system: %v", progress, progress.System, progress.Reasons())
		}
		return err
	})
	if kept, err := d.CleanUp(t.Context()); err != nil || kept > 0 {
		t.Fatalf("%d migrations are kept: %v", kept, err)
	}
}

// testDrain drains alpha, which has workspaces of other tests that select it.
func (e *env) testDrain(t *testing.T) {
	var objects []*corev1.ConfigMap
	var paths []string
	for _, path := range []string{"drained-0", "drained-1", "drained-2", "drained-3", "drained-0:child"} {
		parent, name := "root", path
		if above, below, ok := strings.Cut(path, ":"); ok {
			parent, name = "root:"+above, below
		}
		e.workspaceOn(t, installation.Alpha, parent, name)
		paths = append(paths, "root:"+path)
		objects = append(objects, put(t, e.at(t, "root:"+path), "of-"+name))
	}
	e.workspace(t, "pinned", installation.Alpha)
	before := len(e.on(t, installation.Alpha))
	if _, err := e.kubectl(t, "drain nowhere", ""); err == nil || !strings.Contains(err.Error(), `the installation has no shard "nowhere"`) {
		t.Errorf("an unknown shard: %v", err)
	}
	e.expect(t, "drain alpha --wait=false --max-concurrent 1", "Repeat the command to go on.")
	if begun := e.drainMigrations(t); len(begun) == 1 {
		path := e.pathOf(t, begun[0].Spec.LogicalCluster)
		if _, err := e.kubectl(t, "move "+path+" --abort", ""); err == nil || !strings.Contains(err.Error(), `kubectl kcp drain alpha --stop`) {
			t.Errorf("a move of the drain is given up: %v", err)
		}
	}
	if begun := e.drainMigrations(t); len(begun) != 1 {
		t.Errorf("%d migrations have begun, want 1", len(begun))
	}
	if out, err := e.kubectl(t, "drain alpha --max-concurrent 1", " of "); err == nil {
		t.Errorf("the interrupted command has succeeded: %s", out)
	}
	out, err := e.kubectl(t, "drain alpha", "")
	if err == nil || !strings.Contains(out, "root:pinned stays: no other shard has the labels that its spec.location.selector demands (name=alpha)") {
		t.Fatalf("got %v; want the refused workspaces; migrations %+v", err, e.drainMigrations(t))
	}
	left := e.on(t, installation.Alpha)
	if len(left) != before-4 {
		t.Errorf("%d of %d workspaces are left on the shard, want all but four", len(left), before)
	}
	if want := fmt.Sprintf("5 of %d moved", len(left)+5); !strings.Contains(out, want) {
		t.Errorf("want %q", want)
	}
	for i, path := range paths {
		cluster := &corev1alpha1.LogicalCluster{}
		c := e.at(t, path)
		shardtesting.Eventually(t, "the logical cluster of "+path, func(ctx context.Context) error { // a busy machine may end a request
			return c.Get(ctx, client.ObjectKey{Name: corev1alpha1.LogicalClusterName}, cluster)
		})
		checkObjects(t, c, objects[i:i+1])
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

	// As the operator does: with the logical clusters of the shard, and the Workspace of each that is to move.
	e.expect(t, "uncordon alpha", "is open")
	e.workspaceOn(t, installation.Alpha, "root", "operated")
	paths, objects = append(paths, "root:operated"), append(objects, put(t, e.at(t, "root:operated"), "of-operated"))
	e.drainAsOperator(t, installation.Alpha)
	if on := e.on(t, installation.Alpha); len(on) > 0 {
		t.Errorf("%d workspaces are on the shard after its drain", len(on))
	}

	// A drain that is stopped leaves no migration, and a workspace that can be used wherever it is.
	e.expect(t, "uncordon alpha", "is open")
	e.workspaceOn(t, installation.Alpha, "root", "stopped")
	paths, objects = append(paths, "root:stopped"), append(objects, put(t, e.at(t, "root:stopped"), "of-stopped"))
	e.expect(t, "drain alpha --wait=false", "1 moving")
	if out, err := e.kubectl(t, "drain alpha --stop", ""); err != nil || !strings.Contains(out, `"kubectl kcp uncordon alpha" opens it`) {
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
}
