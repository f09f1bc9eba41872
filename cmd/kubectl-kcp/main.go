// Command kubectl-kcp is the kubectl plugin "kubectl kcp", which gathers everything there is for workspaces.
package main

import (
	"github.com/spf13/cobra"

	"github.com/atoll-dev/atoll/plugin"
	"github.com/atoll-dev/atoll/plugin/binding"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/snapshot"
	"github.com/atoll-dev/atoll/plugin/workspace"
)

func main() { plugin.Main("kubectl kcp", newCommand) }

func newCommand(flags *connection.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "kcp",
		Short:   "Work with workspaces and the APIs they share",
		Example: "  kubectl kcp workspace :root\n  kubectl kcp bind apiexport root:org:provider:cowboys",
	}
	cmd.AddCommand(
		workspace.NewCommand(flags),
		binding.NewBindCommand(flags),
		binding.NewClaimsCommand(flags),
		snapshot.NewCommand(flags),
	)
	return cmd
}
