package desired

import (
	"strings"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// Where servers find their credentials for the shared index.
const (
	shardIndexDir = "/etc/kcp/shared-index/tls"
	proxyIndexDir = proxyDir + "/shared-index"
)

// sharedIndex names the index of an installation and mounts the credentials for it into a directory: those of the component,
// else those of the installation. It says whether there is an index.
func (c *commandLine) sharedIndex(index *operatorv1alpha1.SharedIndexConfig, own *operatorv1alpha1.SharedIndexClient, dir string) bool {
	if index == nil {
		return false
	}
	c.flag("shared-index-etcd-servers", strings.Join(index.Endpoints, ","))
	set(c, "shared-index-prefix", index.Prefix)
	credentials := index.TLSConfig
	if own != nil && own.TLSConfig != nil {
		credentials = own.TLSConfig
	}
	if credentials != nil {
		c.flag("shared-index-etcd-cafile", dir+"/ca.crt")
		c.flag("shared-index-etcd-certfile", dir+"/tls.crt")
		c.flag("shared-index-etcd-keyfile", dir+"/tls.key")
		c.mount(secretVolume("shared-index-credentials", credentials.SecretRef.Name), dir)
	}
	return true
}

// SharedIndex is what the shard's own spec says about the shared index of its installation.
func (s Shard) SharedIndex() *operatorv1alpha1.SharedIndexClient {
	if s.IsRoot() {
		return nil
	}
	return s.shard.Spec.SharedIndex
}

// sharedIndexFlags lets a shard write what is on it, and keep the index small.
func (s Shard) sharedIndexFlags(c *commandLine) {
	index := s.root.Spec.SharedIndex
	if c.sharedIndex(index, s.SharedIndex(), shardIndexDir) && index.CompactionInterval != nil {
		c.flag("shared-index-compaction-interval", index.CompactionInterval.Duration)
	}
}
