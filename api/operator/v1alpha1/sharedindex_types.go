package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SharedIndexConfig is an etcd in which the shards of an installation write which workspaces they have, and from which
// its proxies read where requests go.
type SharedIndexConfig struct {
	// endpoints are the client URLs of the etcd, for example https://index-0.index:2379.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:items:Pattern=`^https?://[^/]+$`
	Endpoints []string `json:"endpoints"`

	// prefix is put before every key. Left out, it is /kcp-index.
	// +optional
	// +kubebuilder:validation:Pattern=`^/.*[^/]$`
	Prefix string `json:"prefix,omitempty"`

	// compactionInterval is how often shards remove old revisions. 0 leaves it to the etcd. Left out, it is five minutes.
	// +optional
	CompactionInterval *metav1.Duration `json:"compactionInterval,omitempty"`

	SharedIndexClient `json:",inline"`
}

// SharedIndexClient is what one component reaches the shared index with, where it is not what the RootShard says.
type SharedIndexClient struct {
	// tlsConfig holds the client credentials for the endpoints. Shards write, proxies read: etcd can let each do no more.
	// +optional
	TLSConfig *EtcdTLSConfig `json:"tlsConfig,omitempty"`
}
