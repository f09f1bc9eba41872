// Command cache-server is the server that the shards of an installation publish shared objects to. It only binds flags;
// everything else is in package cacheserver.
package main

import (
	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/atoll-dev/atoll/cacheserver"
	"github.com/atoll-dev/atoll/cacheserver/options"
	"github.com/atoll-dev/atoll/internal/buildversion"
	"github.com/atoll-dev/atoll/internal/servercommand"
)

func main() {
	servercommand.Main(newCommand())
}

func newCommand() *cobra.Command {
	o := options.New()
	var sets cliflag.NamedFlagSets
	o.AddFlags(&sets)
	cmd := &cobra.Command{
		Use:   "cache-server",
		Short: "Serve the objects that the shards of an installation replicate",
		Long: `The cache server keeps copies of what shards publish: exports, schemas, workspace types, shards, RBAC of these, and
requests of one shard to another. Every shard writes under its own name and watches all others. Shards continue without
the cache, and catch up afterwards.

Clients authenticate with a certificate of --client-ca-file. Organization system:masters has all permissions;
organization system:kcp:shard with common name system:kcp:shard:<name> reads all objects and writes shards/<name>;
organization system:kcp:cache with common name system:kcp:cache:<name> is a child cache.`,
		Example: `  # With etcd in the process and a generated serving certificate, data in .kcp-cache
  cache-server --client-ca-file=client-ca.crt

  # Several of these, on one etcd, are one cache
  cache-server --client-ca-file=client-ca.crt --tls-cert-file=tls.crt --tls-private-key-file=tls.key --root-directory= \
    --etcd-servers=https://etcd-0:2379,https://etcd-1:2379 --etcd-cafile=ca.crt --etcd-certfile=etcd.crt --etcd-keyfile=etcd.key

  # The cache of a region, below a cache for all regions
  cache-server --client-ca-file=client-ca.crt --cache-name=europe --parent-kubeconfig=global-cache.kubeconfig

  # Then, on every shard
  kcp start --cache-kubeconfig=cache.kubeconfig ...`,
		Version:       buildversion.Long(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := servercommand.Configure(o.Logs, nil); err != nil {
				return err
			}
			config, err := o.Complete()
			if err != nil {
				return err
			}
			legacyregistry.CustomMustRegister(config.Certificates)
			server, err := cacheserver.New(cmd.Context(), config)
			if err != nil {
				return err
			}
			return server.Run(cmd.Context())
		},
	}
	servercommand.AddFlagSets(cmd, sets)
	return cmd
}
