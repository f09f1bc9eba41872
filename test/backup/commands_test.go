package backup

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/plugin"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/kcp"
	testinstallation "github.com/atoll-dev/atoll/test/installation"
)

// plugIn runs "kubectl kcp" against a cluster.
type plugIn func(ctx context.Context, input string, args ...string) (string, error)

func newPlugIn(t *testing.T, cluster *rest.Config) plugIn {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	testinstallation.WriteKubeconfig(t, cluster, kubeconfig)
	return func(ctx context.Context, input string, args ...string) (string, error) {
		streams, _, out, errOut := genericiooptions.NewTestIOStreams()
		streams.In = strings.NewReader(input)
		cmd := plugin.NewRootCommand("kubectl kcp", connection.NewFlags(streams), kcp.NewCommand)
		cmd.SetArgs(append(slices.Clone(args), "--kubeconfig="+kubeconfig))
		cmd.SilenceErrors = true
		cmd.SetOut(&bytes.Buffer{})
		err := cmd.ExecuteContext(ctx)
		return out.String() + errOut.String(), err
	}
}

// testCommands runs the commands of people against the objects of the other tests.
func testCommands(t *testing.T, run plugIn, first string) {
	output, err := run(t.Context(), "", "backup", "list", "-n", namespace)
	if err != nil {
		t.Fatal(err, output)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(output) {
		fields := strings.Fields(line)
		rows[fields[0]] = fields
	}
	if b := rows["b"]; len(b) != 7 || b[1] != "yearly" || b[4] != "0" || !strings.HasSuffix(b[5], "-0000000a") || b[6] != string(operatorv1alpha1.BackupPhaseCompleted) {
		t.Errorf("got %q:\n%s", b, output)
	}
	if byHand, pending := rows["by-hand"], rows[first]; len(byHand) != 7 || byHand[1] != "-" || len(pending) != 7 || pending[1] != "fresh" || pending[5] != "-" {
		t.Errorf("got %q and %q:\n%s", byHand, pending, output)
	}
	if output, err := run(t.Context(), "", "backup", "list", "-n", "default"); err != nil || output != "Namespace \"default\" has no Backups.\n" {
		t.Errorf("without Backups: %v, %q", err, output)
	}
	if output, err := run(t.Context(), "", "backup", "create", "--root-shard=other", "--store=store", "-n", namespace); err != nil || !strings.HasPrefix(output, `Created Backup "other-`) {
		t.Errorf("a Backup without a name: %v, %q", err, output)
	}
	restore := []string{"restore", "create", "cli", "--identity-secret=age", "-n", namespace}
	byID := slices.Concat(restore, []string{"--id=20300102T030405Z-0-0", "--root-shard=root", "--store=store"})
	with := func(args []string, more string) []string { return append(slices.Clone(args), more) }
	for name, tc := range map[string]struct {
		args   []string
		expect string
	}{
		"one that has not ended":  {[]string{"backup", "create", "cli", "--root-shard=other", "--store=store", "--wait", "--timeout=1s", "-n", namespace}, `Backup "cli" has not ended after 1s`},
		"a workspace":             {[]string{"backup", "create", ":root:org", "--root-shard=root", "--store=store"}, "set --workspace of kubectl kcp restore create"},
		"a name that is taken":    {[]string{"backup", "create", "b", "--root-shard=root", "--store=store", "-n", namespace}, "already exists"},
		"no store":                {[]string{"backup", "create", "--root-shard=root"}, "--store is required"},
		"a timeout without wait":  {[]string{"backup", "create", "--root-shard=root", "--store=store", "--timeout=1s"}, "no effect with --wait=false"},
		"a cluster of workspaces": {[]string{"backup", "list", "--server=https://127.0.0.1:1"}, "listing the Backups"},
		"no digest":               {byID, "--manifest-digest is required"},
		"a digest that is none":   {with(byID, "--manifest-digest=x"), "spec.manifestDigest"},
		"a workspace elsewhere":   {with(with(byID, "--workspace=root:org"), "--take-over"), "--workspace cannot be combined with --take-over"},
		"no backup":               {restore, "name the backup with --backup"},
		"two backups":             {with(byID, "--backup=b"), "cannot be combined"},
		"a pending backup":        {with(restore, "--backup="+first), "got the state Pending"},
		"an unknown one":          {with(restore, "--backup=unknown"), `"unknown" not found`},
		"one without a digest":    {with(restore, "--backup=b"), "has no digest of its manifest"},
		"an unknown Restore":      {[]string{"restore", "release", "unknown", "-n", namespace, "--yes"}, `"unknown" not found`},
		"a Restore that failed":   {[]string{"restore", "release", "digest", "-n", restoredNamespace, "--yes"}, "got the state Failed"},
	} {
		t.Run(name, func(t *testing.T) {
			if output, err := run(t.Context(), "", tc.args...); err == nil || !strings.Contains(err.Error(), tc.expect) {
				t.Errorf("got %v, want an error with %q: %s", err, tc.expect, output)
			}
		})
	}
}

// restoreByCommand creates a Restore and follows it. The function that it returns waits for the end.
func (r *restores) restoreByCommand(t *testing.T, name string) func() (string, error) {
	t.Helper()
	type result struct {
		output string
		err    error
	}
	done := make(chan result, 1)
	go func() {
		output, err := r.command(t.Context(), "", "restore", "create", name, "-n", restoredNamespace, "--id="+r.id, "--root-shard="+rootShard, "--store=store", "--manifest-digest="+r.digest,
			"--identity-secret=age", "--take-over", "--wait")
		done <- result{output, err}
	}()
	return func() (string, error) {
		ended := <-done
		return ended.output, ended.err
	}
}

// releaseByCommand releases a Restore, after an answer that is another name.
func (r *restores) releaseByCommand(t *testing.T, name string) {
	t.Helper()
	args := []string{"restore", "release", name, "-n", restoredNamespace}
	if output, err := r.command(t.Context(), "", args...); err == nil || !strings.Contains(err.Error(), `nothing is released: got "", expected "good"`) || !strings.Contains(output, "delete logical clusters whose Workspace") {
		t.Errorf("without an answer: %v, %s", err, output)
	}
	if restore := r.await(t, name, operatorv1alpha1.RestorePhaseCompleted); restore.Spec.Release {
		t.Error("it is released without an answer")
	}
	for _, input := range []string{name + "\n", ""} { // once it is released, nothing is asked
		if output, err := r.command(t.Context(), input, args...); err != nil || !strings.Contains(output, `Restore "good" is released`) {
			t.Errorf("%v: %s", err, output)
		}
	}
}
