package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Shard is an additional shard of a kcp installation. It is registered at its RootShard under its own name.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories={atoll,kcp}
// +kubebuilder:printcolumn:name="RootShard",type=string,JSONPath=`.spec.rootShard.ref.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Drained",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Drained")].message`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !self.metadata.name.contains('.')",message="the name of a Shard must not contain a dot: names of Services are made from it",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 27",message="the name of a Shard has at most 27 characters: names of certificates are made from it",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name != 'root'",message="the name root is that of the shard of the RootShard inside the installation",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !has(self.spec) || !has(self.spec.rootShard.ref) || !has(self.spec.rootShard.ref.name) || self.spec.rootShard.ref.name != self.metadata.name",message="a Shard must not have the name of its RootShard: their certificates would have the same names",optionalOldSelf=true
type Shard struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the shard.
	// +optional
	Spec ShardSpec `json:"spec,omitzero"`

	// status is the observed state of the shard.
	// +optional
	// +kubebuilder:default={}
	Status ShardStatus `json:"status,omitzero"`
}

// ShardList is a list of Shards.
// +kubebuilder:object:root=true
type ShardList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Shard `json:"items"`
}

// ShardSpec is the desired state of a shard.
type ShardSpec struct {
	CommonShardSpec `json:",inline"`

	// rootShard names the RootShard of the installation that the shard belongs to.
	// +required
	RootShard RootShardReference `json:"rootShard"`

	// cache is the cache server of the shard. If unset, the shard uses the cache server of the RootShard.
	// +optional
	Cache ShardCacheConfig `json:"cache,omitzero"`

	// sharedIndex has credentials of the shard for the shared index of the installation. If unset, it uses those of
	// the RootShard. It has no effect if the installation has no shared index. It is an addition of Atoll.
	// +optional
	SharedIndex *SharedIndexClient `json:"sharedIndex,omitempty"`

	// drain places no further workspaces on the shard and moves its workspaces to others. The condition Drained has
	// the progress, and the deletion of the Shard waits for it. All shards need the feature gate
	// LogicalClusterMigration (extraArgs). Defaults to false. It is an addition of Atoll.
	// +optional
	Drain bool `json:"drain,omitempty"`
}

// RootShardReference is a reference to the RootShard that an object belongs to.
type RootShardReference struct {
	// ref names a RootShard in the same namespace. The schema does not require it, but an object without it does not
	// become ready, and its conditions say so.
	// +optional
	Reference *corev1.LocalObjectReference `json:"ref,omitempty"`
}

// ShardCacheConfig is the cache server of a shard.
type ShardCacheConfig struct {
	// ref names a CacheServer in the same namespace. If unset, the shard uses the cache server of the RootShard.
	// +optional
	Ref *corev1.LocalObjectReference `json:"ref,omitempty"`
}

// ShardPhase summarizes the state of a Shard.
type ShardPhase string

// Phases of a Shard.
const (
	ShardPhaseProvisioning ShardPhase = "Provisioning"
	ShardPhaseRunning      ShardPhase = "Running"
	ShardPhaseDeleting     ShardPhase = "Deleting"
)

// ShardStatus is the observed state of a shard.
type ShardStatus struct {
	// observedGeneration is the generation of the spec that was reconciled, -1 before the first.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase summarizes the conditions: Provisioning, Running or Deleting.
	// +optional
	Phase ShardPhase `json:"phase,omitempty"`

	// version is the image tag that all server pods run. Empty while they run different ones.
	// +optional
	Version string `json:"version,omitempty"`

	// endpoint is the URL at which other components reach the shard.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// etcd is the state of the etcd that the operator runs for the shard. Unset if it runs none. It is an addition of
	// Atoll.
	// +optional
	Etcd *EtcdStatus `json:"etcd,omitempty"`

	// conditions describe the state of the shard.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
