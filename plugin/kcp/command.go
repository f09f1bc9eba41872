// Package kcp is the library behind "kubectl kcp": it combines the commands of the other packages and adds nothing.
package kcp

import (
	"github.com/spf13/cobra"

	"github.com/atoll-dev/atoll/plugin/audit"
	"github.com/atoll-dev/atoll/plugin/backup"
	"github.com/atoll-dev/atoll/plugin/binding"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/doctor"
	"github.com/atoll-dev/atoll/plugin/move"
	"github.com/atoll-dev/atoll/plugin/publishedresource"
	"github.com/atoll-dev/atoll/plugin/quickstart"
	"github.com/atoll-dev/atoll/plugin/shard"
	"github.com/atoll-dev/atoll/plugin/snapshot"
	"github.com/atoll-dev/atoll/plugin/usage"
	"github.com/atoll-dev/atoll/plugin/workspace"
)

// NewCommand returns "kubectl kcp". The caller binds the flags of the connection.
func NewCommand(flags *connection.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "kcp",
		Short:   "Work with workspaces and the APIs they share",
		Example: "  kubectl kcp workspace :root\n  kubectl kcp bind apiexport root:org:provider:cowboys",
	}
	cmd.AddCommand(
		workspace.NewCommand(flags),
		binding.NewBindCommand(flags),
		binding.NewClaimsCommand(flags),
		move.NewCommand(flags),
		snapshot.NewCommand(flags),
		publishedresource.NewCommand(flags),
		quickstart.NewCommand(flags),
		shard.NewCordonCommand(flags),
		shard.NewUncordonCommand(flags),
		shard.NewDrainCommand(flags),
		doctor.NewCommand(flags),
		backup.NewCommand(flags),
		backup.NewRestoreCommand(flags),
		usage.NewCommand(flags),
		audit.NewCommand(flags),
	)
	return cmd
}
