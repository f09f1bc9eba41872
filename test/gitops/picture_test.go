//go:build gitops

package gitops

import (
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// terminal is a page with the content of a terminal.
const terminal = `<!doctype html><meta charset="utf-8"><style>
body { margin: 0; background: #0d1117; color: #e6edf3; width: max-content; }
pre { margin: 0; padding: 16px 20px; font: 13px/1.5 "DejaVu Sans Mono", monospace; }
b { color: #7ee787; font-weight: normal; }
</style><pre><b>$ `

// picture runs a command and writes a page of it and its output, if pictures are requested; hack/gitops.sh has package pictures of
// test/chromium take the pictures of the pages. The kubeconfig is that of the host cluster.
func (e *environment) picture(t *testing.T, name string, command ...string) {
	t.Helper()
	directory := os.Getenv(envPictures)
	if directory == "" {
		return
	}
	program, err := exec.LookPath(command[0])
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, command[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.kubeconfig)
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command, err, output)
	}
	document := terminal + html.EscapeString(strings.Join(command, " ")) + "</b>\n" + html.EscapeString(string(output)) + "</pre>"
	if err := os.WriteFile(filepath.Join(directory, name+".html"), []byte(document), 0o644); err != nil {
		t.Fatal(err)
	}
}
