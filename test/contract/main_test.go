package contract

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/atoll-dev/atoll/test/installation"
)

// bin is the directory of the binaries under test.
var bin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	directory, err := os.MkdirTemp("", "contract-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(directory)
	bin = directory
	if err := installation.Build(context.Background(), filepath.Join("..", ".."), bin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
