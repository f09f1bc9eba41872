package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"

	"github.com/atoll-dev/atoll/internal/drain"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/follow"
)

// NewCordonCommand returns "kubectl kcp cordon". The caller binds the flags of the connection.
func NewCordonCommand(flags *connection.Flags) *cobra.Command {
	return &cobra.Command{
		Use:   "cordon SHARD",
		Short: "Close a shard for new workspaces",
		Long: `Close a shard for new workspaces. Those that it has stay, and are served as before.

For administrators of the installation.`,
		Example:           "  kubectl kcp cordon alpha",
		Args:              oneShard,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return decideAbout(cmd.Context(), flags, args[0], "Shard %q is closed for new workspaces.\n", func(ctx context.Context, admin dynamic.Interface, shard string) error {
				return drain.Cordon(ctx, admin, shard, drain.ReasonCordon)
			})
		},
	}
}

// NewUncordonCommand returns "kubectl kcp uncordon". The caller binds the flags of the connection.
func NewUncordonCommand(flags *connection.Flags) *cobra.Command {
	return &cobra.Command{
		Use:   "uncordon SHARD",
		Short: "Open a shard for new workspaces again",
		Long: `Open a shard for new workspaces again. A drain of the shard ends. What has moved already stays where it is.

For administrators of the installation.`,
		Example:           "  kubectl kcp uncordon alpha",
		Args:              oneShard,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return decideAbout(cmd.Context(), flags, args[0], "Shard %q is open for new workspaces.\n", drain.Uncordon)
		},
	}
}

// NewDrainCommand returns "kubectl kcp drain". The caller binds the flags of the connection.
func NewDrainCommand(flags *connection.Flags) *cobra.Command {
	o := options{wait: true, concurrency: drain.DefaultConcurrency}
	cmd := &cobra.Command{
		Use:   "drain SHARD",
		Short: "Move all workspaces of a shard to other shards",
		Long: `Close a shard for new workspaces, and move those that it has to other shards, a few at a time. The feature gate
LogicalClusterMigration has to be enabled on every shard.

A workspace goes to a shard that could have it if it were new: one that its location selector matches, that is open, healthy and not
full, in the same region and with the same external URL. Workspaces for which there is no such shard, and those that are not ready,
stay, and are listed with the reasons at the end. A move that fails is tried again.

The command can be interrupted, and repeated to go on: what has been done is in the LogicalClusterMigrations in root. The shard stays
closed for new workspaces; "kubectl kcp uncordon" opens it.

For administrators of the installation.`,
		Example: `  # move everything that can be moved
  kubectl kcp drain alpha

  # faster, with more load on the shards
  kubectl kcp drain alpha --max-concurrent 5

  # give up: moves that have not taken over are aborted, and the drain of everybody ends
  kubectl kcp drain alpha --stop
  kubectl kcp uncordon alpha`,
		Args:              oneShard,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			d, err := newDrainer(flags, args[0], o)
			if err != nil {
				return err
			}
			ctx, stop := follow.WithInterrupt(cmd.Context())
			defer stop()
			if o.stop {
				return explain(args[0], d.end(ctx))
			}
			return explain(args[0], d.run(ctx))
		},
	}
	cmd.Flags().BoolVar(&o.wait, "wait", o.wait, "Go on until nothing is left that can be moved. Otherwise begin as many moves as may run at a time, and return")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "How long to wait. Moves that have begun are finished afterwards. 0 is without a limit")
	cmd.Flags().IntVar(&o.concurrency, "max-concurrent", o.concurrency, "How many workspaces move at a time")
	cmd.Flags().BoolVar(&o.stop, "stop", false, "End the drain, and abort moves that have not taken over yet")
	return cmd
}

func oneShard(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return errors.New("name one shard; \"kubectl get shards\" in the admin workspace (\"kubectl ws :admin\") lists them")
	}
	return nil
}

// open returns clients for the installation of the current workspace, which may be the admin workspace.
func open(flags *connection.Flags) (*connection.Installation, error) {
	session, err := flags.Open()
	if err != nil {
		return nil, err
	}
	if location, ok := connection.AdminLocation(session.URL()); ok {
		return session.InstallationAt(location)
	}
	return session.Installation()
}

// decideAbout calls do with the admin workspace, and prints the message.
func decideAbout(ctx context.Context, flags *connection.Flags, shard, message string, do func(context.Context, dynamic.Interface, string) error) error {
	installation, err := open(flags)
	if err != nil {
		return err
	}
	admin, err := installation.AdminClient()
	if err != nil {
		return err
	}
	if err := do(ctx, admin, shard); err != nil {
		return explain(shard, err)
	}
	_, err = fmt.Fprintf(flags.Out, message, shard)
	return err
}

// explain says what to do about an error, where that is known.
func explain(shard string, err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the installation has no shard %q: %w", shard, err)
	}
	return err
}
