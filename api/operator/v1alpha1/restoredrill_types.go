package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RestoreDrill restores the last Backup of an installation at given times, into a namespace that exists only for that, and measures how
// long it takes and what would have been lost. The copy has certificate authorities of its own, so that it cannot reach the installation.
// The operator needs the flag --restore-drill-namespace, and the rights that go with it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories={atoll,kcp}
// +kubebuilder:printcolumn:name="RootShard",type=string,JSONPath=`.spec.rootShardRef.name`
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec.schedule`
// +kubebuilder:printcolumn:name="Suspend",type=boolean,JSONPath=`.spec.suspend`
// +kubebuilder:printcolumn:name="Running",type=string,JSONPath=`.status.active.backup`
// +kubebuilder:printcolumn:name="Successful",type=date,JSONPath=`.status.lastSuccessfulTime`
// +kubebuilder:printcolumn:name="Recovery",type=string,JSONPath=`.status.recoveryTime`
// +kubebuilder:printcolumn:name="Loss",type=string,JSONPath=`.status.dataLoss`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Next",type=string,priority=1,JSONPath=`.status.nextScheduleTime`
// +kubebuilder:printcolumn:name="Store",type=string,priority=1,JSONPath=`.spec.storeRef.name`
type RestoreDrill struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says when what is restored.
	// +required
	// +kubebuilder:validation:XValidation:rule="self.rootShardRef == oldSelf.rootShardRef",message="rootShardRef is immutable: create another RestoreDrill"
	// +kubebuilder:validation:XValidation:rule="self.storeRef == oldSelf.storeRef",message="storeRef is immutable: create another RestoreDrill"
	Spec RestoreDrillSpec `json:"spec"`

	// status is what the drills have shown.
	// +optional
	// +kubebuilder:default={}
	Status RestoreDrillStatus `json:"status,omitzero"`
}

// RestoreDrillList is a list of RestoreDrills.
// +kubebuilder:object:root=true
type RestoreDrillList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RestoreDrill `json:"items"`
}

// RestoreDrillSpec says when what is restored. It has the fields of a Backup: the last one with the same is restored.
type RestoreDrillSpec struct {
	BackupSpec `json:",inline"`

	// backupScheduleRef limits the Backups to those of a BackupSchedule. By default, the last one that was completed is restored, whoever
	// has created it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.name) && self.name != ''",message="name must be set"
	BackupScheduleRef *corev1.LocalObjectReference `json:"backupScheduleRef,omitempty"`

	// identity is the key of a Secret with identities (private keys) of age, one a line. Whoever reads it can read every backup that is
	// encrypted to them.
	// +required
	Identity SecretKeyReference `json:"identity"`

	// schedule has the five fields of cron (minute, hour, day of month, month, day of week), or is @hourly, @daily, @weekly, @monthly or
	// @yearly.
	// +required
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:Pattern=`^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|[^\s@]+( +\S+){4})$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('TZ=')",message="schedule has no time zone: set timeZone"
	Schedule string `json:"schedule"`

	// timeZone of the schedule is a name such as Europe/Berlin. By default, it is UTC. In other zones, an hour of the night occurs
	// twice or not at all on some days.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.lowerAscii() != 'local'",message="timeZone is a name such as Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`

	// suspend starts no drills. One that runs is finished. Times that pass meanwhile are not made up for.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// immediate starts the first drill as soon as the RestoreDrill exists.
	// +optional
	Immediate bool `json:"immediate,omitempty"`

	// timeout is when a drill that has not succeeded has failed, for example 30m. By default, it is 1h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="timeout is from 1m to 24h"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// successfulDrillsHistoryLimit is the number of drills that have succeeded in status.history. By default, it is 3.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=20
	SuccessfulDrillsHistoryLimit *int32 `json:"successfulDrillsHistoryLimit,omitempty"`

	// failedDrillsHistoryLimit is the number of drills that have failed in status.history. By default, it is 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=20
	FailedDrillsHistoryLimit *int32 `json:"failedDrillsHistoryLimit,omitempty"`
}

// RestoreDrillResult is how a drill has ended.
type RestoreDrillResult string

// Results of drills.
const (
	RestoreDrillSucceeded RestoreDrillResult = "Succeeded"
	RestoreDrillFailed    RestoreDrillResult = "Failed"
)

// RestoreDrillRun is one drill.
type RestoreDrillRun struct {
	// backup is the name of the Backup that is restored.
	// +required
	Backup string `json:"backup"`

	// backupId is its name in the store.
	// +required
	BackupID string `json:"backupId"`

	// manifestDigest is the SHA-256 digest of its manifest.
	// +optional
	ManifestDigest string `json:"manifestDigest,omitempty"`

	// namespace is that of the drill.
	// +required
	Namespace string `json:"namespace"`

	// startedAt is when the drill began.
	// +required
	StartedAt metav1.Time `json:"startedAt"`

	// namespaceUID is the UID of the namespace of the drill, once it exists.
	// +optional
	NamespaceUID string `json:"namespaceUID,omitempty"`

	// stoppedAt is when the drill had succeeded or failed. After that, its namespace is deleted.
	// +optional
	StoppedAt *metav1.Time `json:"stoppedAt,omitempty"`

	// result is Succeeded or Failed; it is empty while the drill runs.
	// +optional
	Result RestoreDrillResult `json:"result,omitempty"`

	// recoveryTime is how long it took from startedAt until all shards served what was restored.
	// +optional
	RecoveryTime string `json:"recoveryTime,omitempty"`

	// dataLoss is how old the data of the backup was at startedAt: what was written meanwhile would have been lost.
	// +optional
	DataLoss string `json:"dataLoss,omitempty"`

	// savedLogicalClusters is the number of logical clusters in the backup.
	// +optional
	SavedLogicalClusters int64 `json:"savedLogicalClusters,omitempty"`

	// logicalClusters is the number of logical clusters that the restored shards have served.
	// +optional
	LogicalClusters int64 `json:"logicalClusters,omitempty"`

	// message is what the drill waits for, or why it has failed.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message,omitempty"`
}

// RestoreDrillStatus is what the drills have shown.
type RestoreDrillStatus struct {
	// observedGeneration is the generation of the spec that was reconciled, -1 before the first.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// active is the drill that runs, or whose namespace is being deleted.
	// +optional
	Active *RestoreDrillRun `json:"active,omitempty"`

	// history has the last drills, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	History []RestoreDrillRun `json:"history,omitempty"`

	// lastScheduleTime is when the last drill began.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`

	// lastSuccessfulTime is when the last drill that succeeded had ended.
	// +optional
	LastSuccessfulTime *metav1.Time `json:"lastSuccessfulTime,omitempty"`

	// lastResult is that of the last drill.
	// +optional
	LastResult RestoreDrillResult `json:"lastResult,omitempty"`

	// nextScheduleTime is when the next drill is due. A time that has passed while no operator ran is made up for once.
	// +optional
	NextScheduleTime *metav1.Time `json:"nextScheduleTime,omitempty"`

	// recoveryTime is that of the last drill that succeeded.
	// +optional
	RecoveryTime string `json:"recoveryTime,omitempty"`

	// dataLoss is that of the last drill that succeeded.
	// +optional
	DataLoss string `json:"dataLoss,omitempty"`

	// conditions are the states of the drills.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
