package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RootShard is the first shard of a kcp installation. It has the workspace root, and the certificate authorities that
// sign the certificates of all other components.
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

	// external is the address at which clients reach the installation. FrontProxies without an address of their own
	// use it.
	// +required
	External ExternalConfig `json:"external"`

	// cache is the cache server of the installation. If unset, the root shard embeds the cache.
	// +optional
	Cache CacheConfig `json:"cache,omitzero"`

	// certificates is the source of the certificate authorities. If unset, the operator creates a self-signed one.
	// +optional
	Certificates RootShardCertificates `json:"certificates,omitzero"`

	// sharedIndex is an etcd with the index of the workspaces of all shards, which proxies read. If unset, proxies
	// watch every shard instead. It is an addition of Atoll.
	// +optional
	SharedIndex *SharedIndexConfig `json:"sharedIndex,omitempty"`

	// rebalance balances the number of workspaces on the shards of the installation. It needs the feature gate
	// LogicalClusterMigration on all shards (extraArgs). If unset, workspaces stay where they are. It is an addition
	// of Atoll.
	// +optional
	Rebalance *RebalanceSpec `json:"rebalance,omitempty"`

	// proxy configures the internal proxy, through which the operator and kubeconfigs reach all workspaces.
	// +optional
	Proxy *RootShardProxySpec `json:"proxy,omitempty"`
}

// RebalanceMode defines what the operator does about shards that have more workspaces than others.
// +kubebuilder:validation:Enum=Off;Suggest;Auto
type RebalanceMode string

// Modes of rebalancing.
const (
	RebalanceOff     RebalanceMode = "Off"     // nothing; moves that have begun are given up, unless they have taken over
	RebalanceSuggest RebalanceMode = "Suggest" // status.rebalance has the moves that would be made
	RebalanceAuto    RebalanceMode = "Auto"    // they are made
)

// RebalanceSpec defines how workspaces are moved from shards with many workspaces to others.
type RebalanceSpec struct {
	// mode is Off, Suggest or Auto. Suggest only writes to status.rebalance what the operator would move and why;
	// Auto moves it.
	// +optional
	// +kubebuilder:default=Off
	Mode RebalanceMode `json:"mode,omitempty"`

	// threshold is by how many percent the number of workspaces on a shard may exceed its share before the operator
	// moves some to other shards, until it is below. No shard receives more than its share. Defaults to 20.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=500
	Threshold *int32 `json:"threshold,omitempty"`

	// maxConcurrent is the number of workspaces that are moved at the same time. Defaults to 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	MaxConcurrent *int32 `json:"maxConcurrent,omitempty"`

	// windows are the times at which moves may start in the mode Auto. A move that has started continues after the
	// window. If unset, moves start at any time.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Windows []RebalanceWindow `json:"windows,omitempty"`
}

// RebalanceWindow is a time of the day at which moves may start.
type RebalanceWindow struct {
	// start is the time of the day at which the window starts, in hours and minutes, such as 02:30.
	// +required
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	Start string `json:"start"`

	// duration is the length of the window, more than 0s and at most 24h, for example 4h.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('24h')",message="the duration is more than 0s, and at most 24h"
	Duration metav1.Duration `json:"duration"`

	// days are the days on which the window starts. If unset, it starts every day.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=7
	Days []RebalanceDay `json:"days,omitempty"`

	// timeZone is the time zone of start and days, a name such as Europe/Berlin. Defaults to UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
}

// RebalanceDay is a day of the week.
// +kubebuilder:validation:Enum=Mon;Tue;Wed;Thu;Fri;Sat;Sun
type RebalanceDay string

// CacheConfig is the cache server of an installation.
type CacheConfig struct {
	// embedded has no effect: without ref, the cache is always embedded. Deprecated: remove it.
	// +optional
	Embedded *EmbeddedCache `json:"embedded,omitempty"`

	// ref names a CacheServer in the same namespace. If unset, the root shard embeds the cache.
	// +optional
	Ref *corev1.LocalObjectReference `json:"ref,omitempty"`
}

// EmbeddedCache is a deprecated setting without effect.
type EmbeddedCache struct {
	// enabled has no effect.
	// +required
	Enabled bool `json:"enabled"`
}

// RootShardProxySpec configures the internal proxy of a root shard, which always exists.
type RootShardProxySpec struct {
	// image is the container image of the proxy. If unset, the image of the shard is used.
	// +optional
	Image *ImageSpec `json:"image,omitempty"`

	// replicas is the number of proxy pods. If unset, the operator starts with 2, and an autoscaler may change the
	// number.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// resources are the resources of the proxy container. They are merged into the defaults: a request of 256Mi
	// memory and a limit of 2Gi memory.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// serviceTemplate changes the Service.
	// +optional
	ServiceTemplate *ServiceTemplate `json:"serviceTemplate,omitempty"`

	// deploymentTemplate changes the Deployment.
	// +optional
	DeploymentTemplate *DeploymentTemplate `json:"deploymentTemplate,omitempty"`

	// certificateTemplates change the certificates by name: server, kubeconfig, requestheader. Other names have no
	// effect; the condition SpecHonored lists them.
	// +optional
	CertificateTemplates CertificateTemplates `json:"certificateTemplates,omitempty"`

	// sharedIndex has credentials of the internal proxy for the shared index. If unset, it uses those of the
	// RootShard. It has no effect if the installation has no shared index. It is an addition of Atoll.
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

	// conditions describe the state of the root shard.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// shards lists the Shards of the installation, sorted by name. It does not contain the root shard.
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

	// rebalance lists the moves that would balance the shards. It is an addition of Atoll.
	// +optional
	Rebalance *RebalanceStatus `json:"rebalance,omitempty"`
}

// RebalanceStatus lists the moves that would balance the shards.
type RebalanceStatus struct {
	// moves are the next moves that would balance the shards, in their order, at most ten.
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

	// from is the name of the shard of the workspace.
	// +required
	From string `json:"from"`

	// to is the name of the shard to which the workspace would be moved.
	// +required
	To string `json:"to"`

	// reason describes the loads of both shards.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// ShardMember names a Shard of an installation.
type ShardMember struct {
	// name of the Shard.
	// +required
	Name string `json:"name"`
}
