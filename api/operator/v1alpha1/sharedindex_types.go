package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SharedIndexConfig is an etcd to which the shards of an installation write the index of their workspaces, and from
// which its proxies read it.
type SharedIndexConfig struct {
	// endpoints are the client URLs of the etcd, for example https://index-0.index:2379.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:items:Pattern=`^https?://[^/]+$`
	Endpoints []string `json:"endpoints"`

	// prefix is put before every key. It begins with a slash and does not end with one. Defaults to /kcp-index.
	// +optional
	// +kubebuilder:validation:Pattern=`^/.*[^/]$`
	Prefix string `json:"prefix,omitempty"`

	// compactionInterval is the interval at which shards remove old revisions from the etcd, for example 10m. If 0,
	// they leave that to the etcd. Defaults to 5m.
	// +optional
	CompactionInterval *metav1.Duration `json:"compactionInterval,omitempty"`

	SharedIndexClient `json:",inline"`
}

// SharedIndexClient has the credentials of one component for the shared index, instead of those of the RootShard.
type SharedIndexClient struct {
	// tlsConfig has the client credentials for the endpoints. Shards require write access, and proxies read access.
	// If unset in a RootShard, clients connect without credentials; if unset in another component, it uses those of
	// the RootShard.
	// +optional
	TLSConfig *EtcdTLSConfig `json:"tlsConfig,omitempty"`
}
