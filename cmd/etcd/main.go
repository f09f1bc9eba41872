// Command etcd is etcd 3.7, built from its module, so that the image can run the store of a RootShard that configures
// no other. A member that the operator runs starts on an empty volume only where that loses no data (package etcdmember).
// Its command "backup", which etcd does not have, saves, verifies and restores (package backup).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"go.etcd.io/etcd/server/v3/etcdmain"

	"github.com/atoll-dev/atoll/internal/etcdmember"
	"github.com/atoll-dev/atoll/internal/gomemlimit"
)

func main() {
	gomemlimit.Set()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	if len(os.Args) > 1 && os.Args[1] == "backup" {
		cmd := newBackupCommand()
		cmd.SetArgs(os.Args[2:])
		exitFor(cmd.ExecuteContext(ctx))
		return
	}
	args, err := etcdmember.Arguments(ctx, os.Args)
	stop()
	exitFor(err)
	etcdmain.Main(args)
}

// exitFor ends the process if there is an error.
func exitFor(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}
