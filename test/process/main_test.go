// Package process tests the shard as operators run it: the real binary, its flags, signals, exit codes and files, and
// etcd as a process of its own. What can be tested inside one process belongs to package shardserver.
package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// bin is the directory of the binaries under test.
var bin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	directory, err := os.MkdirTemp("", "process-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(directory)
	bin = directory
	build := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "./cmd/kcp", "./cmd/etcd")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the binaries: %v\n%s", err, output)
		return 1
	}
	return m.Run()
}
