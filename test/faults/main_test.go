// Package faults breaks one part of a running installation after another, and checks the guarantees of the rest:
// unaffected functions work without a failed request, a failed server recovers on its own, and no acknowledged write is
// lost. The installation is three shards, a cache server and a front proxy, the real binaries.
package faults

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/atoll-dev/atoll/test/installation"
)

// binaries is the directory of the programs, built once.
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
