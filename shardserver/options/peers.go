package options

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// rootShardContext is the context of --root-shard-kubeconfig-file that leads to the root shard, whichever is the current
// one: that of the bare shard, without a logical cluster.
const rootShardContext = "shard-base"

// IsRoot tells whether this is the root shard, which holds the logical cluster root.
func (o *Options) IsRoot() bool { return o.Shard.Name == DefaultShardName }

// completePeers checks what a shard needs of others. The root shard needs nobody.
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
		return fmt.Errorf("--root-identities-file: is for the shard called %q; this one takes the identities that the root shard has", DefaultShardName)
	}
	return nil
}

// RootConfig returns how this shard reaches the root shard.
func (o *Options) RootConfig() (*rest.Config, error) {
	return o.peer("--root-shard-kubeconfig-file", o.Shard.RootKubeconfig, rootShardContext)
}

// CacheConfig returns how this shard reaches the cache server, or nil if it is to run one itself.
func (o *Options) CacheConfig() (*rest.Config, error) {
	if o.Shard.CacheKubeconfig == "" {
		return nil, nil
	}
	return o.peer("--cache-kubeconfig", o.Shard.CacheKubeconfig, "")
}

// ProxyConfig returns how this shard reaches the logical clusters of others, through the front proxy, or nil if nobody says.
func (o *Options) ProxyConfig() (*rest.Config, error) {
	if o.Shard.ExternalLogicalClusterAdminKubeconfig == "" {
		return nil, nil
	}
	return o.peer("--external-logical-cluster-admin-kubeconfig", o.Shard.ExternalLogicalClusterAdminKubeconfig, "")
}

// peer reads a kubeconfig. Where it holds no credentials, the shard shows its client certificate.
func (o *Options) peer(flag, file, context string) (*rest.Config, error) {
	kubeconfig, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if context != "" {
		if _, ok := kubeconfig.Contexts[context]; !ok {
			return nil, fmt.Errorf("%s %s: has contexts %s, want one called %q", flag, file, names(kubeconfig.Contexts), context)
		}
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*kubeconfig, context, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, file, err)
	}
	if o.Shard.ClientCertFile != "" && anonymous(config) {
		config.CertFile, config.KeyFile = o.Shard.ClientCertFile, o.Shard.ClientKeyFile
	}
	config.UserAgent = rest.DefaultKubernetesUserAgent() + " shard/" + o.Shard.Name
	return config, nil
}

func anonymous(config *rest.Config) bool {
	return config.BearerToken == "" && config.BearerTokenFile == "" && config.Username == "" && config.ExecProvider == nil &&
		config.AuthProvider == nil && config.CertFile == "" && len(config.CertData) == 0
}

func names(contexts map[string]*clientcmdapi.Context) string {
	var all []string
	for name := range contexts {
		all = append(all, fmt.Sprintf("%q", name))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
