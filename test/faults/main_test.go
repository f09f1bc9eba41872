// Package faults breaks one part of a running installation after another, and holds what is left to its word: what must
// go on working does so without a failed request, what was away comes back by itself, and no write that was
// acknowledged is lost. The installation is three shards, a cache server and a front proxy, the real binaries.
package faults

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/atoll-dev/atoll/test/installation"
)

// binaries is where the programs are, built once.
var binaries string

func TestMain(m *testing.M) {
	directory, err := os.MkdirTemp("", "faults-")
	if err == nil {
		err = installation.Build(context.Background(), "../..", directory)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaries = directory
	code := m.Run()
	os.RemoveAll(directory)
	os.Exit(code)
}
