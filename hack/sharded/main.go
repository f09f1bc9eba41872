// Command sharded runs an installation of several shards on this machine for developers: `make sharded` starts it and
// returns when it is ready, `make sharded-down` stops it. The processes outlive the command; a file in the directory
// records them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	log.SetLogger(logr.Discard()) // clients of controller-runtime log a stack without one
	if err := command().ExecuteContext(ctx); err != nil {
		os.Exit(1) // cobra has printed the error
	}
}

// settings are the values of the flags.
type settings struct {
	directory, binaries string
	shards              []string
	noCache, freePorts  bool
	timeout             time.Duration
}

func command() *cobra.Command {
	s := settings{}
	root := &cobra.Command{
		Use:           "sharded",
		Short:         "A root shard, more shards, a cache server and a front proxy on this machine",
		SilenceUsage:  true,
		SilenceErrors: false,
		PersistentPreRunE: func(*cobra.Command, []string) (err error) {
			s.directory, err = filepath.Abs(s.directory)
			return err
		},
	}
	root.PersistentFlags().StringVar(&s.directory, "directory", ".sharded", "where data, certificates, logs and the admin kubeconfig are")
	up := &cobra.Command{
		Use:     "up",
		Short:   "Start the installation, and return when everything is ready",
		Example: "  sharded up --binaries bin\n  sharded up --binaries bin --shards root,alpha --no-cache",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return s.up(cmd.Context(), cmd.OutOrStdout()) },
	}
	up.Flags().StringVar(&s.binaries, "binaries", "bin", "directory of kcp, kcp-front-proxy and cache-server")
	up.Flags().StringSliceVar(&s.shards, "shards", []string{"root", "alpha", "beta"}, "names of the shards, root first")
	up.Flags().BoolVar(&s.noCache, "no-cache", false, "use the root shard's own cache instead of a cache server")
	up.Flags().BoolVar(&s.freePorts, "free-ports", false, "have servers listen on free ports instead of 6443 and the next ones")
	up.Flags().DurationVar(&s.timeout, "timeout", 3*time.Minute, "how long everything may take to become ready")
	down := &cobra.Command{
		Use:   "down",
		Short: "End the processes that up has started, and nothing else",
		Long:  "End the processes that up has started, and nothing else. The data stays, and the next up goes on with it.",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return s.down(cmd.OutOrStdout()) },
	}
	root.AddCommand(up, down)
	return root
}

// formatLine formats a line of progress for users.
func formatLine(format string, args ...any) string { return fmt.Sprintf(format+"\n", args...) }
