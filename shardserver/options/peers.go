package options

import (
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/internal/kubeconfig"
)

// rootShardContext is the context of --root-shard-kubeconfig-file for the root shard, regardless of the current
// context. Its URL is that of the shard itself, without a logical cluster.
const rootShardContext = "shard-base"

// IsRoot reports whether this is the root shard, which has the logical cluster root.
func (o *Options) IsRoot() bool { return o.Shard.Name == DefaultShardName }

// completePeers validates the connections to other shards. The root shard requires none.
func (c *completed) completePeers() error {
	if c.IsRoot() {
		return nil
	}
	if c.Shard.CacheKubeconfig == "" {
		return fmt.Errorf("--cache-kubeconfig is required for non-root shards")
	}
	if c.Shard.RootKubeconfig == "" {
		return fmt.Errorf("--root-shard-kubeconfig-file is required for non-root shards")
	}
	if c.Shard.RootIdentitiesFile != "" {
		return fmt.Errorf("--root-identities-file: is supported on the shard %q only; other shards use the identities of the root shard", DefaultShardName)
	}
	return nil
}

// RootConfig returns the client configuration for the root shard.
func (o *Options) RootConfig() (*rest.Config, error) {
	return o.loadPeerConfig("--root-shard-kubeconfig-file", o.Shard.RootKubeconfig, rootShardContext)
}

// CacheConfig returns the client configuration for the cache server, or nil if the shard runs one itself.
func (o *Options) CacheConfig() (*rest.Config, error) {
	if o.Shard.CacheKubeconfig == "" {
		return nil, nil
	}
	return o.loadPeerConfig("--cache-kubeconfig", o.Shard.CacheKubeconfig, "")
}

// ProxyConfig returns the address and the CA of the front proxy, or nil if it is not configured. The credentials in the
// file are not read: the shard has none for logical clusters of other shards.
func (o *Options) ProxyConfig() (*rest.Config, error) {
	const flag = "--external-logical-cluster-admin-kubeconfig"
	file := o.Shard.ExternalLogicalClusterAdminKubeconfig
	if file == "" {
		return nil, nil
	}
	config, err := kubeconfig.LoadWithoutCredentials(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	config.UserAgent = o.userAgent()
	return config, nil
}

// loadPeerConfig reads a kubeconfig. If it contains no credentials, the shard's client certificate is used.
func (o *Options) loadPeerConfig(flag, file, context string) (*rest.Config, error) {
	config, err := kubeconfig.Load(file, context)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	config.UserAgent = o.userAgent()
	if o.Shard.ClientCertFile != "" && hasNoCredentials(config) {
		config.CertFile, config.KeyFile = o.Shard.ClientCertFile, o.Shard.ClientKeyFile
	}
	return config, nil
}

func (o *Options) userAgent() string {
	return rest.DefaultKubernetesUserAgent() + " shard/" + o.Shard.Name
}

func hasNoCredentials(config *rest.Config) bool {
	return config.BearerToken == "" && config.BearerTokenFile == "" && config.Username == "" && config.ExecProvider == nil &&
		config.AuthProvider == nil && config.CertFile == "" && len(config.CertData) == 0
}
