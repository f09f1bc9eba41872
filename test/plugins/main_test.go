// Package plugins tests the kubectl plug-ins against real servers, three shards behind a front proxy: that the servers
// respond as the plug-ins expect, and the output that users see. The unit tests of the plug-ins cover responses that
// are hard to provoke.
package plugins

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/plugin"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/kcp"
	"github.com/atoll-dev/atoll/plugin/workspace"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/sharded"
)

var bin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	directory, err := os.MkdirTemp("", "plugins-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(directory)
	if err := installation.Build(context.Background(), "../..", directory); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	bin = directory
	return m.Run()
}

// TestPlugins shares one installation; each subtest has a workspace of its own. The first one needs a healthy installation, the last one
// breaks it.
func TestPlugins(t *testing.T) {
	i := installation.StartWith(t, bin, sharded.Options{
		Shards: []string{installation.Root, installation.Alpha, installation.Beta}, ShardFlags: []string{moveGate, "--usage-flush-interval=2s"}, Validity: 365 * 24 * time.Hour,
	})
	t.Run("healthy", func(t *testing.T) { testHealthy(t, i) })
	for name, test := range map[string]func(*testing.T, *installation.Installation){
		"workspaces":           testWorkspaces,
		"bindings and claims":  testBindings,
		"completion":           testCompletion,
		"quickstart of an API": testAPIQuickstart,
		"quickstart of a tree": testTreeQuickstart,
		"published resources":  testPublishedResources,
		"no server":            testNoServer,
		"admin workspace":      testAdminWorkspace,
		"moves":                testMove,
		"usage":                testUsage,
		"audit":                testAudit,
	} {
		t.Run(name, func(t *testing.T) { test(t, i) })
	}
	t.Run("faults", func(t *testing.T) { testFaults(t, i) })
}

// user is a user with a kubeconfig.
type user struct {
	*testing.T
	kubeconfig string
	url        string // of the front proxy; shown as SERVER in all outputs
	lastError  error  // of the last command
}

func newUser(t *testing.T, i *installation.Installation, config *rest.Config) *user {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	u := &user{T: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), url: i.URL}
	installation.WriteKubeconfig(t, config, u.kubeconfig)
	return u
}

// commandOutput is the output and the error of a command.
type commandOutput struct{ out, errOut, err string }

// kcp runs "kubectl kcp" with the words of a line.
func (u *user) kcp(line string) commandOutput {
	u.Helper()
	return u.run(kcp.NewCommand, strings.Fields(line)...)
}

// create runs "kubectl create workspace" with the words of a line.
func (u *user) create(line string) commandOutput {
	u.Helper()
	return u.run(workspace.NewCreateCommand, strings.Fields(line)...)
}

func (u *user) run(build func(*connection.Flags) *cobra.Command, args ...string) commandOutput {
	u.Helper()
	var out, errOut bytes.Buffer
	cmd := plugin.NewRootCommand("kubectl test", connection.NewFlags(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}), build)
	cmd.SilenceErrors = true
	u.Setenv("KUBECONFIG", u.kubeconfig)
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	var got commandOutput
	if u.lastError = cmd.ExecuteContext(u.Context()); u.lastError != nil {
		got.err = u.maskURL(u.lastError.Error())
	}
	got.out, got.errOut = u.maskURL(out.String()), u.maskURL(errOut.String())
	return got
}

func (u *user) maskURL(s string) string { return strings.ReplaceAll(s, u.url, "SERVER") }

// expect fails the test unless a command produced the expected output.
func (u *user) expect(got, want commandOutput) {
	u.Helper()
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(commandOutput{})); diff != "" {
		u.Fatalf("(-want +got):\n%s", diff)
	}
}
