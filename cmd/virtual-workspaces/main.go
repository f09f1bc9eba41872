// Command virtual-workspaces serves the virtual workspaces of one shard at a separate address. See package
// proxy/virtualworkspaces.
package main

import (
	"fmt"

	"github.com/spf13/cobra"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/atoll-dev/atoll/internal/buildversion"
	"github.com/atoll-dev/atoll/internal/servercommand"
	"github.com/atoll-dev/atoll/proxy/virtualworkspaces"
)

func main() {
	utilruntime.Must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
	servercommand.Main(newCommand())
}

func newCommand() *cobra.Command {
	o := virtualworkspaces.NewOptions()
	cmd := &cobra.Command{
		Use:   "virtual-workspaces",
		Short: "Serve the virtual workspaces of one shard at a separate address",
		Long: `Virtual workspaces are the APIs below /services/: for the provider of an API on all its consumers, for initializers on the
workspaces that wait for them. A shard serves them itself. This server authenticates requests and forwards them to one
shard.`,
		Example: `  # Beside a shard that publishes --shard-virtual-workspace-url=https://vw.example:6444:
  virtual-workspaces --kubeconfig=shard.kubeconfig --client-ca-file=client-ca.crt \
    --tls-cert-file=tls.crt --tls-private-key-file=tls.key

  # Behind a front proxy:
  virtual-workspaces ... --requestheader-client-ca-file=proxy-ca.crt --requestheader-allowed-names=kcp-front-proxy`,
		Version:       buildversion.Long(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(o.UpstreamGates()); err != nil {
				return fmt.Errorf("--feature-gates: %w", err)
			}
			if err := servercommand.Configure(o.Logs, utilfeature.DefaultFeatureGate); err != nil {
				return err
			}
			server, err := virtualworkspaces.New(o)
			if err != nil {
				return err
			}
			return server.Run(cmd.Context())
		},
	}
	o.AddFlags(cmd.Flags())
	return cmd
}
