package options

import "github.com/atoll-dev/atoll/internal/certexpiry"

// Certificates returns the metric of the certificates that the shard presents to clients, to etcd, to the root shard, and to
// the cache server. Those that an embedded etcd generates for itself do not expire.
func (c Completed) Certificates() (*certexpiry.Collector, error) {
	out := certexpiry.New()
	out.AddFile("tls-cert-file", c.SecureServing.ServerCert.CertKey.CertFile)
	if !c.Embedded {
		out.AddFile("etcd-certfile", c.Etcd.StorageConfig.Transport.CertFile)
	}
	if c.SharedIndex != nil {
		out.AddFile("shared-index-etcd-certfile", c.SharedIndex.CertFile)
	}
	cache, err := c.CacheConfig()
	if err != nil {
		return nil, err
	}
	out.AddClient("cache-kubeconfig", cache)
	if c.IsRoot() {
		return out, nil
	}
	root, err := c.RootConfig()
	if err != nil {
		return nil, err
	}
	out.AddClient("root-shard-kubeconfig-file", root)
	return out, nil
}
