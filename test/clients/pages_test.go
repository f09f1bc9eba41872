package clients

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/component-base/cli"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/atoll-dev/atoll/test/freeport"
	"github.com/atoll-dev/atoll/test/programs"
)

// Pages of the documentation are executed unchanged, so that they stay correct: every "sh" block runs in one shell,
// and its output must match the "text" block after it. There, "..." matches anything in a line, and a line of "..."
// alone matches any number of lines. The command of an "sh fails" block must fail.

// pageTimeout bounds the execution of a page.
const pageTimeout = 5 * time.Minute

// block is a block of commands of a page.
type block struct {
	page     string
	line     int // in the page, of the first command
	commands string
	fails    bool
	output   *string // expected output, nil if the page has none
}

// parseBlocks parses a page.
func parseBlocks(page string) (blocks []block) {
	var fence, content string
	var began int
	for i, line := range strings.Split(page, "\n") {
		info, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && fence == "":
			fence, content, began = "```"+info, "", i+2
		case isFence:
			switch text := content; fence {
			case "```sh", "```sh fails":
				blocks = append(blocks, block{line: began, commands: text, fails: fence != "```sh"})
			case "```text":
				if last := len(blocks) - 1; last >= 0 && blocks[last].output == nil {
					blocks[last].output = &text
				}
			}
			fence = ""
		case fence != "":
			content += line + "\n"
		}
	}
	return blocks
}

// outputPattern returns the expression for an output with "..." in it.
func outputPattern(output string) *regexp.Regexp {
	expression := regexp.QuoteMeta(strings.TrimRight(output, "\n"))
	expression = regexp.MustCompile(`(?m)^\\\.\\\.\\\.$\n?`).ReplaceAllString(expression, `(?s:.*)`)
	return regexp.MustCompile(`^` + strings.ReplaceAll(expression, `\.\.\.`, `.*`) + `\s*$`)
}

// trimTrailingSpaces trims spaces at the ends of lines, which table output has.
func trimTrailingSpaces(output string) string {
	return regexp.MustCompile(`(?m)[ \t]+$`).ReplaceAllString(output, "")
}

const marker = "\x01block "

// buildScript returns the commands of all blocks with markers in between.
func buildScript(blocks []block) string {
	var s strings.Builder
	s.WriteString("set -eu -o pipefail\nexec 2>&1\n")
	for i, one := range blocks {
		fmt.Fprintf(&s, "printf '%s%d\\n'\n", marker, i)
		if one.fails {
			fmt.Fprintf(&s, "if { %s\n}; then echo 'this should have failed'; exit 1; fi\n", strings.TrimSpace(one.commands))
		} else {
			s.WriteString(one.commands)
		}
	}
	return s.String()
}

// readBlocks returns the blocks of a tutorial, whose pages follow each other.
func readBlocks(t *testing.T, tutorial []string) (blocks []block) {
	t.Helper()
	for _, page := range tutorial {
		content, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		found := parseBlocks(string(content))
		if len(found) < 2 {
			t.Fatalf("docs/%s: only %d blocks are found", page, len(found))
		}
		for i := range found {
			found[i].page = page
		}
		blocks = append(blocks, found...)
	}
	return blocks
}

// TestPages runs the tutorials in a shell, in a directory that looks like a checkout after `make build`.
func TestPages(t *testing.T) {
	for _, tutorial := range [][]string{
		{"getting-started-apis.md"},
		{"publishing.md", "publishing-contents.md", "publishing-related.md", "publishing-check.md"},
		{"getting-started-infrastructure.md"},
	} {
		t.Run(tutorial[0], func(t *testing.T) {
			blocks := readBlocks(t, tutorial)
			address := freeAddress(t)
			output, err := runShell(t, newCheckout(t), strings.ReplaceAll(buildScript(blocks), webAddress, address))
			if err != nil {
				t.Errorf("the shell ends with %v", err)
			}
			compareOutput(t, blocks, strings.ReplaceAll(output, address, webAddress))
		})
	}
}

// webAddress is where the web server of pages listens. Tests have it listen on a free port.
const webAddress = "localhost:8443"

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := freeport.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return net.JoinHostPort("localhost", strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
}

// compareOutput checks for each block that the output matches the page.
func compareOutput(t *testing.T, blocks []block, output string) {
	t.Helper()
	for _, part := range strings.Split(output, marker)[1:] {
		number, got, _ := strings.Cut(part, "\n")
		i, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		one := blocks[i]
		location := fmt.Sprintf("docs/%s:%d", one.page, one.line)
		t.Logf("%s\n$ %s%s", location, one.commands, got)
		if one.output != nil && !outputPattern(*one.output).MatchString(trimTrailingSpaces(got)) {
			t.Errorf("%s prints\n%s\nwant the output of the page:\n%s", location, got, *one.output)
		}
	}
}

// newCheckout returns a directory with config, examples and bin as in the sources, where all servers listen on free ports.
func newCheckout(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	commands := filepath.Join(directory, "bin")
	if err := os.Mkdir(commands, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := programs.Build(t.Context(), root, commands, "./cmd/kubectl-kcp", "./cmd/kubectl-ws", "./cmd/kubectl-create-workspace", "./cmd/sync-agent",
		"./cmd/infrastructure-provider", "./hack/sharded"); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"config": filepath.Join(root, "config"), "examples": filepath.Join(root, "examples"), "bin/kubectl": self} {
		if err := os.Symlink(target, filepath.Join(directory, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{
		// The binaries are built already.
		"make": `#!/bin/sh
case "$*" in
*sharded-down*) exec bin/sharded down ;;
*sharded*) exec bin/sharded up --free-ports --binaries ` + bin + ` ;;
esac
`,
		"kcp": "#!/bin/sh\nexec " + filepath.Join(bin, "kcp") + ` "$@" --bind-address=127.0.0.1 --secure-port=0 --experimental-bind-free-port` +
			" --embedded-etcd-client-port=0 --embedded-etcd-peer-port=0 --embedded-etcd-wal-size-bytes=1000000\n",
	} {
		if err := os.WriteFile(filepath.Join(commands, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // of a page that ends before it ends them
		down := exec.Command(filepath.Join(commands, "sharded"), "down")
		down.Dir = directory
		if output, err := down.CombinedOutput(); err != nil {
			t.Errorf("ending the servers: %v\n%s", err, output)
		}
	})
	return directory
}

// runShell runs a script and ends the processes that it leaves running.
func runShell(t *testing.T, directory, script string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), pageTimeout)
	defer cancel()
	output, err := os.Create(filepath.Join(directory, "output")) // a pipe would stay open in background processes
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	shell := exec.CommandContext(ctx, "bash")
	shell.Dir, shell.Stdin, shell.Stdout = directory, strings.NewReader(script), output
	shell.Env = append(os.Environ(), "HOME="+directory, "PATH="+filepath.Join(directory, "bin")+":"+os.Getenv("PATH"))
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }()
	err = shell.Wait()
	content, readErr := os.ReadFile(output.Name())
	if readErr != nil {
		t.Fatal(readErr)
	}
	return string(bytes.ReplaceAll(content, []byte(directory), []byte("$PWD"))), err
}

// kubectlName is the name under which this binary runs as kubectl, plug-ins included.
const kubectlName = "kubectl"

func runKubectl() {
	if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
		cmdutil.CheckErr(err) // prints as kubectl does, and exits with its code
	}
}

func TestOutputPattern(t *testing.T) {
	for name, tc := range map[string]struct {
		page, got string
		want      bool
	}{
		"equal output":                            {"a\nb\n", "a\nb\n", true},
		"another line":                            {"a\nb\n", "a\nc\n", false},
		"dots match a part of a line":             {"a ... c\n", "a xyz c\n", true},
		"dots do not span lines":                  {"a ... c\n", "a x\ny c\n", false},
		"a line of dots matches lines":            {"a\n...\nb\n", "a\nx\ny\nb\n", true},
		"a line of dots matches lines at the end": {"a\n...\n", "a\nx\n", true},
		"a dot is no wildcard":                    {"a.b\n", "axb\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := outputPattern(tc.page).MatchString(tc.got); got != tc.want {
				t.Errorf("%q is the output %q: %v", tc.got, tc.page, got)
			}
		})
	}
}
