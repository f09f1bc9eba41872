// Command kcp-front-proxy serves all logical clusters of an installation at one address. See package proxy.
package main

import (
	"fmt"

	"github.com/spf13/cobra"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/atoll-dev/atoll/internal/buildversion"
	"github.com/atoll-dev/atoll/internal/servercommand"
	"github.com/atoll-dev/atoll/proxy"
	"github.com/atoll-dev/atoll/proxy/options"
)

func main() {
	utilruntime.Must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
	servercommand.Main(newCommand())
}

func newCommand() *cobra.Command {
	o := options.New()
	cmd := &cobra.Command{
		Use:   "kcp-front-proxy",
		Short: "Serve all logical clusters of an installation at one address",
		Long: `The front proxy forwards /clusters/<path>/... to the shard of the logical cluster, and other paths as the mapping
file defines. It authenticates users and forwards their identity to shards.`,
		Example: `  # The mapping file has an entry for the shards and one for virtual workspaces:
  #   - path: /clusters/
  #     backend: https://root-kcp:6443
  #     backend_server_ca: ca.crt
  #     proxy_client_cert: requestheader.crt
  #     proxy_client_key: requestheader.key
  #   - path: /services/
  #     ...
  kcp-front-proxy --mapping-file=mapping.yaml --root-kubeconfig=shards.kubeconfig \
    --shards-kubeconfig=shards.kubeconfig --client-ca-file=client-ca.crt \
    --tls-cert-file=tls.crt --tls-private-key-file=tls.key --secure-port=6443

  # With users of an OpenID Connect issuer, and service accounts of all workspaces:
  kcp-front-proxy ... --oidc-issuer-url=https://issuer.example --oidc-client-id=kcp \
    --service-account-key-file=service-account.crt --service-account-lookup=false`,
		Version:       buildversion.Long(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			completed, err := o.Complete()
			if err != nil {
				return err
			}
			if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(completed.UpstreamGates()); err != nil {
				return fmt.Errorf("--feature-gates: %w", err)
			}
			if err := servercommand.Configure(completed.Logs, utilfeature.DefaultFeatureGate); err != nil {
				return err
			}
			config, err := proxy.NewConfig(completed)
			if err != nil {
				return err
			}
			complete, err := config.Complete()
			if err != nil {
				return err
			}
			server, err := proxy.NewServer(complete)
			if err != nil {
				return err
			}
			return server.Run(cmd.Context())
		},
	}
	o.AddFlags(cmd.Flags())
	return cmd
}
