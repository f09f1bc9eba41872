//go:build e2e

package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// testPlugins runs the commands of a new user, with the binaries of `make build`.
func (in *installation) testPlugins(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, in.kubeconfigFile(t, adminSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(want string, name string, args ...string) {
		t.Helper()
		var out bytes.Buffer
		cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv(envBinaries), name), args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out.String())
		} else if !strings.Contains(out.String(), want) {
			t.Errorf("%s %s: want %q in\n%s", name, strings.Join(args, " "), want, out.String())
		}
	}
	run("root", "kubectl-ws", ".", "--short")
	run("is ready to use", "kubectl-create-workspace", "plugins", "--enter")
	run("root:plugins", "kubectl-ws", ".", "--short")
	run("already exists", "kubectl-create-workspace", "plugins", "--ignore-existing", "--type", "root:organization", "-w", ":root")
	run("is ready to use", "kubectl-create-workspace", "inner")
	run("root:plugins:inner", "kubectl-ws", "inner")
	run("root:plugins", "kubectl-ws", "..")
	run("root:plugins:inner", "kubectl-ws", "-")
	run("root:e2e:a", "kubectl-ws", ":root:e2e:a")
	run("root", "kubectl-ws", "use", ":root")
	run("inner", "kubectl-ws", "tree")
	run("inner", "kubectl-kcp", "ws", "tree")
	run("Quickstart complete!", "kubectl-kcp", "quickstart", "--with-samples", "--enter")
	run("cowboys created and bound", "kubectl-kcp", "bind", "apiexport", "root:quickstart-org:quickstart-provider:cowboys", "-w", ":root:plugins")
	run("GROUP-RESOURCE", "kubectl-kcp", "claims", "get", "apibinding", "cowboys", "-w", ":root:plugins")
	run("Cleanup complete.", "kubectl-kcp", "quickstart", "--cleanup")
}
