// Package process tests the shard as operators run it: the real binary, its flags, signals, exit codes and files, and
// etcd as a separate process. Tests that work within one process belong to package shardserver.
package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/atoll-dev/atoll/test/programs"
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
	if err := programs.Build(context.Background(), filepath.Join("..", ".."), bin, "./cmd/kcp", "./cmd/etcd"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
