package move

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/follow"
	"github.com/atoll-dev/atoll/plugin/workspace"
)

// options are the flags of "kubectl kcp move".
type options struct {
	workspace       string
	to              string
	includeChildren bool
	abort           bool
	wait            bool
	timeout         time.Duration
}

func (o options) validate() error {
	switch {
	case o.abort && (o.to != "" || o.includeChildren):
		return errors.New("--abort cannot be combined with --to or --include-children")
	case !o.abort && o.to == "":
		return errors.New("name the destination with --to; kubectl get shards in :root lists the shards")
	}
	return follow.ValidateTimeout(o.wait, o.timeout)
}

// NewCommand returns "kubectl kcp move". The caller binds the flags of the connection.
func NewCommand(flags *connection.Flags) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "move WORKSPACE (--to SHARD | --abort)",
		Short: "Move a workspace to another shard",
		Long: `Move a workspace to another shard, and show how far it is. WORKSPACE is a name or a path, as for "kubectl ws". For
administrators of an installation, whose shards have the feature gate LogicalClusterMigration enabled (alpha).

The command creates a LogicalClusterMigration in the root workspace. The shards do the rest: the command can be stopped with
ctrl-C, and started again to follow. The workspace stays usable; its writes are refused for some seconds at the end. A move
that may not begin, for instance because the shard is full, waits until it may.

Children stay where they are without --include-children. With it they follow one at a time, parents first. If one cannot be
moved, those that were moved stay, and the same command moves the rest later.

--abort gives up a move. The workspace stays on its shard, unless the other one has taken over already.`,
		Example: `  # move a workspace, and follow
  kubectl kcp move :root:org:team --to beta

  # with all workspaces below it, without waiting
  kubectl kcp move team --to beta --include-children --wait=false

  # give up
  kubectl kcp move team --abort`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name one workspace to move: a name, or a path such as :root:org:team")
			}
			return nil
		},
		ValidArgsFunction: workspace.CompletePath(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.workspace = args[0]
			if err := o.validate(); err != nil {
				return err
			}
			ctx, stop := follow.WithInterrupt(cmd.Context())
			defer stop()
			m, err := open(ctx, flags, o)
			if err != nil {
				return err
			}
			if o.abort {
				return m.abort(ctx)
			}
			return m.move(ctx)
		},
	}
	cmd.Flags().StringVar(&o.to, "to", "", "Name of the shard to move the workspace to")
	cmd.Flags().BoolVar(&o.includeChildren, "include-children", false, "Move the workspaces below, too, one at a time")
	cmd.Flags().BoolVar(&o.abort, "abort", false, "Give up the move of the workspace that is in progress")
	cmd.Flags().BoolVar(&o.wait, "wait", true, "Wait until the move has ended, and show its progress")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "How long to wait. The move goes on afterwards. 0 is without a limit")
	_ = cmd.RegisterFlagCompletionFunc("to", completeShard(flags))
	return cmd
}
