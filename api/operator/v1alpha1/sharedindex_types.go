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

	// prefix is put before every key. By default, it is /kcp-index.
	// +optional
	// +kubebuilder:validation:Pattern=`^/.*[^/]$`
	Prefix string `json:"prefix,omitempty"`

	// compactionInterval is how often shards remove old revisions. 0 leaves it to the etcd. By default, it is five
	// minutes.
	// +optional
	CompactionInterval *metav1.Duration `json:"compactionInterval,omitempty"`

	SharedIndexClient `json:",inline"`
}

// SharedIndexClient has the credentials of one component for the shared index, instead of those of the RootShard.
type SharedIndexClient struct {
	// tlsConfig holds the client credentials for the endpoints. Shards write and proxies read, so that etcd can limit
	// each to that.
	// +optional
	TLSConfig *EtcdTLSConfig `json:"tlsConfig,omitempty"`
}
