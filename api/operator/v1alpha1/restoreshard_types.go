package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RestoreShard is the shard that a Restore replaces in an installation that runs.
type RestoreShard struct {
	// name of the Shard, in the same namespace. It needs the annotation operator.kcp.io/restore with the name of the
	// Restore, and an etcd that the operator runs on volumes. The root shard is restored with its installation only.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// discardData confirms that the volumes of the shard are deleted, and what was written since the backup is lost.
	// Required unless all its volumes are known to be empty. Defaults to false.
	// +optional
	DiscardData bool `json:"discardData,omitempty"`
}

// RestoreShardStatus describes the restore of one shard.
type RestoreShardStatus struct {
	// replacedEtcdClusterID is the ID of the etcd cluster whose data the Restore replaces. Empty if it was never
	// recorded.
	// +optional
	ReplacedEtcdClusterID string `json:"replacedEtcdClusterID,omitempty"`

	// initialCluster is the list of the members of the etcd that is restored, with their URLs. While the Restore runs,
	// it waits if the Shard describes another one.
	// +optional
	InitialCluster string `json:"initialCluster,omitempty"`

	// prefix is that of the keys of the shard, which must not change while the Restore runs.
	// +optional
	Prefix string `json:"prefix,omitempty"`

	// comparedAt is the time at which the operator last compared the shard with the others, or tried to.
	// +optional
	ComparedAt *metav1.Time `json:"comparedAt,omitempty"`
}
