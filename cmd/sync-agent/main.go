// Command sync-agent publishes APIs of a service cluster into workspaces. It only binds flags; everything else is in package syncagent
// and those below.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // the image has no public CAs
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/atoll-dev/atoll/internal/buildversion"
	"github.com/atoll-dev/atoll/internal/gomemlimit"
	"github.com/atoll-dev/atoll/internal/processlog"
	"github.com/atoll-dev/atoll/syncagent"
	"github.com/atoll-dev/atoll/syncagent/kdp/services"
	"github.com/atoll-dev/atoll/syncagent/options"
)

func main() {
	if err := newCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintf(os.Stderr, "Error: %v\n", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	o := options.New()
	cmd := &cobra.Command{
		Use:   "sync-agent",
		Short: "Publish APIs of a service cluster into workspaces, and sync their objects",
		Long: `The sync agent runs beside a service. For every PublishedResource of the service cluster it keeps an APIResourceSchema and an
entry in the APIExport. Objects that consumers create in workspaces that bind the export are copied to the service cluster; status and
related objects are copied back.`,
		Example: `  # In a pod of the service cluster
  sync-agent --kcp-kubeconfig=/etc/kcp/kubeconfig --apiexportendpointslice-ref=certificates --namespace=sync-agent

  # Outside of the cluster, one of several replicas
  sync-agent --kubeconfig=service.kubeconfig --kcp-kubeconfig=kcp.kubeconfig --apiexportendpointslice-ref=certificates \
    --namespace=sync-agent --enable-leader-election`,
		Version:       buildversion.Long(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := o.Complete()
			if err != nil {
				return err
			}
			gomemlimit.Set()
			return syncagent.Run(cmd.Context(), syncagent.Config{Options: config, Log: processlog.Set(o.LogFormat == "Console", o.LogDebug)})
		},
	}
	o.AddFlags(cmd.Flags())
	cmd.AddCommand(newServicesCommand(), newCleanupCommand())
	return cmd
}

func newServicesCommand() *cobra.Command {
	cmd := services.NewCommand()
	cmd.PreRun = func(*cobra.Command, []string) {
		processlog.Set(false, false)
		gomemlimit.Set()
	}
	return cmd
}
