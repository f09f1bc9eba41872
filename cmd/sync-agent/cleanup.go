package main

import (
	"github.com/spf13/cobra"

	"github.com/atoll-dev/atoll/syncagent/cleanup"
	"github.com/atoll-dev/atoll/syncagent/options"
)

func newCleanupCommand() *cobra.Command {
	clusters := options.Clusters{}
	var remove bool
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "List, or remove, what the agent has left behind",
		Long: `List the copies, states and finalizers for which no PublishedResource is synced any more, because it was deleted or disabled, and the
copies whose workspace does not bind the export any more. With --delete, they are removed, finalizers after copies; what finalizers of others
hold up is left to another run. All endpoints have to answer, and the endpoint slice has to be valid. Run it with the flags of the agent.`,
		Example: `  sync-agent cleanup --kcp-kubeconfig=kcp.kubeconfig --apiexportendpointslice-ref=certificates --namespace=sync-agent
  sync-agent cleanup --delete --kcp-kubeconfig=kcp.kubeconfig --apiexportendpointslice-ref=certificates --namespace=sync-agent`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := clusters.Complete()
			if err != nil {
				return err
			}
			return cleanup.Run(cmd.Context(), config, remove, cmd.OutOrStdout())
		},
	}
	clusters.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&remove, "delete", remove, "remove what is listed")
	return cmd
}
