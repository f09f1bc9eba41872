// Command cmd runs go build and prints lines of progress. Its arguments are the directory of a module, a directory for the programs, the
// value of -ldflags, and packages:
//
//	go -C hack/release run ./gobuild/cmd "$PWD" "$PWD/bin" "-s -w" ./cmd/kcp ./cmd/operator
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/atoll-dev/atoll/hack/release/gobuild"
)

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintf(os.Stderr, "gobuild: got %d arguments, want: MODULE OUTPUT LDFLAGS PACKAGE...\n", len(os.Args)-1)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	build := gobuild.Build{
		Directory: os.Args[1], Output: os.Args[2] + string(filepath.Separator), Flags: []string{"-ldflags", os.Args[3]}, Packages: os.Args[4:],
	}
	if err := build.Run(ctx, func(line string) { fmt.Println("   " + line) }); err != nil {
		fmt.Fprintln(os.Stderr, "gobuild:", err)
		os.Exit(1)
	}
}
