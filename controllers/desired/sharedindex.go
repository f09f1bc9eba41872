package desired

import (
	"strings"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// Directories of credentials for the shared index.
const (
	shardIndexDir = "/etc/kcp/shared-index/tls"
	proxyIndexDir = proxyDir + "/shared-index"
)

// addSharedIndex sets the flags of the shared index and mounts its credentials into a directory: those of the component, or else those of
// the installation. It reports whether the installation has a shared index.
func (c *commandLine) addSharedIndex(index *operatorv1alpha1.SharedIndexConfig, own *operatorv1alpha1.SharedIndexClient, dir string) bool {
	if index == nil {
		return false
	}
	c.addFlag("shared-index-etcd-servers", strings.Join(index.Endpoints, ","))
	addNonZeroFlag(c, "shared-index-prefix", index.Prefix)
	credentials := index.TLSConfig
	if own != nil && own.TLSConfig != nil {
		credentials = own.TLSConfig
	}
	if credentials != nil {
		c.addFlag("shared-index-etcd-cafile", dir+"/ca.crt")
		c.addFlag("shared-index-etcd-certfile", dir+"/tls.crt")
		c.addFlag("shared-index-etcd-keyfile", dir+"/tls.key")
		c.addMount(secretVolume("shared-index-credentials", credentials.SecretRef.Name), dir)
	}
	return true
}

// SharedIndex is the shared index client in the spec of the shard, or nil.
func (s Shard) SharedIndex() *operatorv1alpha1.SharedIndexClient {
	if s.IsRoot() {
		return nil
	}
	return s.shard.Spec.SharedIndex
}

// addSharedIndexFlags are the flags by which a shard writes to the shared index and compacts it.
func (s Shard) addSharedIndexFlags(c *commandLine) {
	index := s.root.Spec.SharedIndex
	if c.addSharedIndex(index, s.SharedIndex(), shardIndexDir) && index.CompactionInterval != nil {
		c.addFlag("shared-index-compaction-interval", index.CompactionInterval.Duration)
	}
}
