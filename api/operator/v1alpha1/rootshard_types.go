package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RootShard is the first shard of a kcp installation: it holds the workspace root, and its certificate authorities are
// those of all other components.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=rshard,categories={atoll,kcp}
// +kubebuilder:printcolumn:name="Hostname",type=string,JSONPath=`.spec.external.hostname`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Shards",type=integer,JSONPath=`.status.shardCount`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Client CA",type=string,priority=1,JSONPath=`.status.certificates.cas[?(@.name=="client-ca")].phase`
// +kubebuilder:printcolumn:name="Request Header CA",type=string,priority=1,JSONPath=`.status.certificates.cas[?(@.name=="requestheader-client-ca")].phase`
// +kubebuilder:printcolumn:name="Service Account Keys",type=string,priority=1,JSONPath=`.status.certificates.cas[?(@.name=="service-account")].phase`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !self.metadata.name.contains('.')",message="the name of a RootShard must not contain a dot: names of Services are made from it",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 40",message="the name of a RootShard has at most 40 characters: names of certificates are made from it",optionalOldSelf=true
type RootShard struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the installation.
	// +optional
	Spec RootShardSpec `json:"spec,omitzero"`

	// status is the observed state of the installation.
	// +optional
	// +kubebuilder:default={}
	Status RootShardStatus `json:"status,omitzero"`
}

// RootShardList is a list of RootShards.
// +kubebuilder:object:root=true
type RootShardList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RootShard `json:"items"`
}

// RootShardSpec is the desired state of a root shard.
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.certificates) || !has(oldSelf.certificates.rekey) || oldSelf.certificates.rekey.all(o, has(self.certificates) && has(self.certificates.rekey) && self.certificates.rekey.exists(n, n.ca == o.ca && n.generation >= o.generation))",message="entries of certificates.rekey remain, and their generation only grows: the key of an earlier generation does not come back"
type RootShardSpec struct {
	CommonShardSpec `json:",inline"`

	// external is the address under which clients reach the installation. FrontProxies without an address of their own
	// use it.
	// +required
	External ExternalConfig `json:"external"`

	// cache is the cache server of the installation. By default, the root shard embeds the cache.
	// +optional
	Cache CacheConfig `json:"cache,omitzero"`

	// certificates is the source of the certificate authority. By default, the operator creates a self-signed
	// certificate authority.
	// +optional
	Certificates RootShardCertificates `json:"certificates,omitzero"`

	// sharedIndex is an etcd with the index of the workspaces of all shards, which proxies read. By default, proxies
	// watch every shard. It is an addition of Atoll.
	// +optional
	SharedIndex *SharedIndexConfig `json:"sharedIndex,omitempty"`

	// rebalance evens out the number of workspaces on the shards of the installation. The feature gate LogicalClusterMigration has
	// to be enabled on all shards (extraArgs). It is an addition of Atoll.
	// +optional
	Rebalance *RebalanceSpec `json:"rebalance,omitempty"`

	// proxy holds the settings of the internal proxy, through which the operator and kubeconfigs reach any workspace.
	// +optional
	Proxy *RootShardProxySpec `json:"proxy,omitempty"`
}

// RebalanceMode says what is done about shards that have more workspaces than others.
// +kubebuilder:validation:Enum=Off;Suggest;Auto
type RebalanceMode string

// Modes of rebalancing.
const (
	RebalanceOff     RebalanceMode = "Off"     // nothing; moves that have begun are given up, unless they have taken over
	RebalanceSuggest RebalanceMode = "Suggest" // status.rebalance has the moves that would be made
	RebalanceAuto    RebalanceMode = "Auto"    // they are made
)

// RebalanceSpec says how workspaces are moved from full shards to others.
type RebalanceSpec struct {
	// mode is Off, Suggest or Auto. Suggest writes to status.rebalance what would be moved and why, Auto moves it.
	// +optional
	// +kubebuilder:default=Off
	Mode RebalanceMode `json:"mode,omitempty"`

	// threshold is by how many percent of its share a shard may be above its share of the workspaces before it gives some to other
	// shards. It gives until it is below; no shard receives more than its share. By default, it is 20.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=500
	Threshold *int32 `json:"threshold,omitempty"`

	// maxConcurrent is the number of workspaces that move at a time. By default, it is 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	MaxConcurrent *int32 `json:"maxConcurrent,omitempty"`

	// windows are the times at which moves begin in the mode Auto. Without any, they begin at any time. Moves that have begun are
	// finished.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Windows []RebalanceWindow `json:"windows,omitempty"`
}

// RebalanceWindow is a time of the day.
type RebalanceWindow struct {
	// start is the time of the day in hours and minutes, such as 02:30.
	// +required
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	Start string `json:"start"`

	// duration is the length of the window, at most 24h.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('24h')",message="the duration is more than 0s, and at most 24h"
	Duration metav1.Duration `json:"duration"`

	// days are those on which the window starts. Without any, it starts every day.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=7
	Days []RebalanceDay `json:"days,omitempty"`

	// timeZone is the name of a time zone, such as Europe/Berlin. By default, it is UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
}

// RebalanceDay is a day of the week.
// +kubebuilder:validation:Enum=Mon;Tue;Wed;Thu;Fri;Sat;Sun
type RebalanceDay string

// CacheConfig is the cache server of an installation.
type CacheConfig struct {
	// embedded has no effect: without ref the cache is always embedded. Deprecated.
	// +optional
	Embedded *EmbeddedCache `json:"embedded,omitempty"`

	// ref names a CacheServer in the same namespace.
	// +optional
	Ref *corev1.LocalObjectReference `json:"ref,omitempty"`
}

// EmbeddedCache is a deprecated setting without effect.
type EmbeddedCache struct {
	// enabled has no effect.
	// +required
	Enabled bool `json:"enabled"`
}

// RootShardProxySpec holds the settings of the internal proxy of a root shard. The proxy always exists.
type RootShardProxySpec struct {
	// image of the proxy. By default, it is the image of the shard.
	// +optional
	Image *ImageSpec `json:"image,omitempty"`

	// replicas is the number of proxy pods. By default, it is 2 at first and an autoscaler may change it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// resources of the proxy container.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// serviceTemplate changes the Service.
	// +optional
	ServiceTemplate *ServiceTemplate `json:"serviceTemplate,omitempty"`

	// deploymentTemplate changes the Deployment.
	// +optional
	DeploymentTemplate *DeploymentTemplate `json:"deploymentTemplate,omitempty"`

	// certificateTemplates changes the certificates by name: server, kubeconfig, requestheader.
	// +optional
	CertificateTemplates CertificateTemplates `json:"certificateTemplates,omitempty"`

	// sharedIndex holds other credentials for the shared index of the installation than those of the RootShard. It is an
	// addition of Atoll.
	// +optional
	SharedIndex *SharedIndexClient `json:"sharedIndex,omitempty"`

	ContainerExtras `json:",inline"`

	// logging configures the log verbosity of the proxy.
	// +optional
	Logging *LoggingSpec `json:"logging,omitempty"`
}

// RootShardPhase summarizes the state of a RootShard.
type RootShardPhase string

// Phases of a RootShard.
const (
	RootShardPhaseProvisioning RootShardPhase = "Provisioning"
	RootShardPhaseRunning      RootShardPhase = "Running"
	RootShardPhaseDeleting     RootShardPhase = "Deleting"
)

// RootShardStatus is the observed state of a root shard.
type RootShardStatus struct {
	// observedGeneration is the generation of the spec that was reconciled, -1 before the first.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase summarizes the conditions: Provisioning, Running or Deleting.
	// +optional
	Phase RootShardPhase `json:"phase,omitempty"`

	// version is the image tag that all server pods run. Empty while they differ.
	// +optional
	Version string `json:"version,omitempty"`

	// endpoint is the URL under which other components reach the shard.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// etcd is the state of the etcd that the operator runs for the object. It is an addition of Atoll.
	// +optional
	Etcd *EtcdStatus `json:"etcd,omitempty"`

	// conditions are the states of the parts of the root shard.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// shards lists the Shards that belong to this RootShard, sorted by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	Shards []ShardMember `json:"shards,omitempty"`

	// shardCount is the number of shards of the installation: the root shard and the Shards. It is an addition of Atoll.
	// +optional
	ShardCount int32 `json:"shardCount,omitempty"`

	// certificates is the state of the certificate authorities that can be re-keyed. It is an addition of Atoll.
	// +optional
	Certificates *CertificatesStatus `json:"certificates,omitempty"`

	// rebalance is what spec.rebalance would move. It is an addition of Atoll.
	// +optional
	Rebalance *RebalanceStatus `json:"rebalance,omitempty"`
}

// RebalanceStatus is what the rebalancer has found.
type RebalanceStatus struct {
	// moves are the next moves that even out the shards, at most ten, in their order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Moves []RebalanceMove `json:"moves,omitempty"`
}

// RebalanceMove is a move of a workspace to another shard.
type RebalanceMove struct {
	// workspace is the path of the workspace.
	// +required
	Workspace string `json:"workspace"`

	// logicalCluster is the name of its logical cluster.
	// +required
	LogicalCluster string `json:"logicalCluster"`

	// from is the shard that has the workspace.
	// +required
	From string `json:"from"`

	// to is the shard that would have it.
	// +required
	To string `json:"to"`

	// reason has the loads of both shards.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// ShardMember names a Shard of an installation.
type ShardMember struct {
	// name of the Shard.
	// +required
	Name string `json:"name"`
}
