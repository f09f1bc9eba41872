// Command kcp is the shard server. It only binds flags; everything else is in package shardserver.
package main

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/embeddedcache"
	"github.com/atoll-dev/atoll/internal/buildversion"
	"github.com/atoll-dev/atoll/internal/servercommand"
	"github.com/atoll-dev/atoll/shardserver"
	"github.com/atoll-dev/atoll/shardserver/options"
)

func main() {
	servercommand.Main(newCommand(os.Args[1:]))
}

func newCommand(args []string) *cobra.Command {
	root := &cobra.Command{
		Use:           "kcp",
		Short:         "A kcp-compatible shard: many logical clusters in one API server",
		Example:       "  kcp start\n  kcp start --help",
		Version:       buildversion.Long(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newStartCommand(args))
	return root
}

func newStartCommand(args []string) *cobra.Command {
	opts := options.New(parseRootDirectory(args))
	var sets cliflag.NamedFlagSets
	opts.AddFlags(&sets)
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Start a shard with everything it needs",
		Long: `Start a shard. Without flags it is a whole installation in one process: embedded etcd, the root
workspace, path routing, and an admin kubeconfig in .kcp/admin.kubeconfig.`,
		Example: `  # Everything in one process; then: export KUBECONFIG=.kcp/admin.kubeconfig
  kcp start

  # On loopback only, with another data directory
  kcp start --root-directory=/var/lib/kcp --bind-address=127.0.0.1

  # A shard beside a root shard; credentials for that one in context "shard-base", and for the cache of all
  kcp start --shard-name=alpha --root-directory=.alpha --root-shard-kubeconfig-file=root.kubeconfig \
    --cache-kubeconfig=cache.kubeconfig --secure-port=6444

  # With an etcd of your own
  kcp start --etcd-servers=https://etcd-0:2379,https://etcd-1:2379 \
    --etcd-cafile=ca.crt --etcd-certfile=tls.crt --etcd-keyfile=tls.key`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), opts) },
	}
	servercommand.AddFlagSets(cmd, sets)
	cmd.AddCommand(&cobra.Command{
		Use:   "options",
		Short: "Print all flags of start",
		Args:  cobra.NoArgs,
		Run:   func(cmd *cobra.Command, _ []string) { servercommand.PrintFlagSets(cmd, sets) },
	})
	return cmd
}

func run(ctx context.Context, opts *options.Options) error {
	if err := servercommand.Configure(opts.Logs, nil); err != nil {
		return err
	}
	completed, err := opts.Complete()
	if err != nil {
		return err
	}
	servercommand.ConfigureMetrics(completed.Metrics)
	server, err := shardserver.New(ctx, completed, embeddedcache.New)
	if err != nil && ctx.Err() != nil {
		klog.InfoS("Ended before the shard could start", "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	klog.InfoS("Starting", "version", buildversion.Long(), "shard", completed.Shard.Name, "url", completed.Shard.BaseURL)
	return server.Run(ctx)
}

// parseRootDirectory parses --root-directory before all other flags, because their defaults depend on it.
func parseRootDirectory(args []string) string {
	directory := options.DefaultRootDirectory
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--root-directory="); ok {
			directory = value
		} else if arg == "--root-directory" && i+1 < len(args) {
			directory = args[i+1]
		}
	}
	return directory
}
