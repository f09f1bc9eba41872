package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RestoreDrill restores the last Backup of an installation on a schedule, into a temporary namespace, and measures
// how long it takes and how old the data is. The copy has its own certificate authorities and cannot reach the
// installation. The operator needs the flag --restore-drill-namespace.
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

	// spec defines what is restored, and when.
	// +required
	// +kubebuilder:validation:XValidation:rule="self.rootShardRef == oldSelf.rootShardRef",message="rootShardRef is immutable: create another RestoreDrill"
	// +kubebuilder:validation:XValidation:rule="self.storeRef == oldSelf.storeRef",message="storeRef is immutable: create another RestoreDrill"
	Spec RestoreDrillSpec `json:"spec"`

	// status describes the results of the drills.
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

// RestoreDrillSpec defines what is restored, and when. It has the fields of a Backup: the last completed Backup with
// the same values is restored.
type RestoreDrillSpec struct {
	BackupSpec `json:",inline"`

	// backupScheduleRef names a BackupSchedule in the same namespace, of whose Backups the last one is restored. If
	// unset, the last completed Backup is restored, no matter who has created it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.name) && self.name != ''",message="name must be set"
	BackupScheduleRef *corev1.LocalObjectReference `json:"backupScheduleRef,omitempty"`

	// identity names the key of a Secret with private keys of age, one per line. Users who can read the Secret can
	// read all backups that are encrypted to these keys.
	// +required
	Identity SecretKeyReference `json:"identity"`

	// schedule is the times at which drills start, in the format of cron: minute, hour, day of month, month, day of
	// week. @hourly, @daily, @weekly, @monthly and @yearly are possible, too.
	// +required
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:Pattern=`^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|[^\s@]+( +\S+){4})$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('TZ=')",message="schedule has no time zone: set timeZone"
	Schedule string `json:"schedule"`

	// timeZone is the time zone of the schedule, a name such as Europe/Berlin. Defaults to UTC. In a zone with
	// daylight saving time, an hour of the night occurs twice, or not at all, on one day each.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.lowerAscii() != 'local'",message="timeZone is a name such as Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`

	// suspend starts no further drills. A drill that runs is completed. Drills that were due meanwhile are not
	// started later. Defaults to false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// immediate starts the first drill as soon as the RestoreDrill exists, instead of at its first time. Defaults to
	// false.
	// +optional
	Immediate bool `json:"immediate,omitempty"`

	// timeout is the time after which a drill that has not succeeded fails, from 1m to 24h, for example 30m. Defaults
	// to 1h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="timeout is from 1m to 24h"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// successfulDrillsHistoryLimit is the number of succeeded drills that status.history keeps. Defaults to 3.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=20
	SuccessfulDrillsHistoryLimit *int32 `json:"successfulDrillsHistoryLimit,omitempty"`

	// failedDrillsHistoryLimit is the number of failed drills that status.history keeps. Defaults to 1.
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

// RestoreDrillRun describes one drill.
type RestoreDrillRun struct {
	// backup is the name of the restored Backup.
	// +required
	Backup string `json:"backup"`

	// backupId is the name of the restored backup in the store.
	// +required
	BackupID string `json:"backupId"`

	// manifestDigest is the SHA-256 digest of the manifest of the backup.
	// +optional
	ManifestDigest string `json:"manifestDigest,omitempty"`

	// namespace is the temporary namespace of the drill.
	// +required
	Namespace string `json:"namespace"`

	// startedAt is the time at which the drill started.
	// +required
	StartedAt metav1.Time `json:"startedAt"`

	// namespaceUID is the UID of that namespace, once it exists.
	// +optional
	NamespaceUID string `json:"namespaceUID,omitempty"`

	// stoppedAt is the time at which the drill succeeded or failed. Its namespace is deleted afterwards.
	// +optional
	StoppedAt *metav1.Time `json:"stoppedAt,omitempty"`

	// result is Succeeded or Failed. Empty while the drill runs.
	// +optional
	Result RestoreDrillResult `json:"result,omitempty"`

	// recoveryTime is the time from startedAt until all restored shards served requests, for example 2m10s.
	// +optional
	RecoveryTime string `json:"recoveryTime,omitempty"`

	// dataLoss is the age of the data of the backup at startedAt: writes of that time would have been lost.
	// +optional
	DataLoss string `json:"dataLoss,omitempty"`

	// savedLogicalClusters is the number of logical clusters in the backup.
	// +optional
	SavedLogicalClusters int64 `json:"savedLogicalClusters,omitempty"`

	// logicalClusters is the number of logical clusters that the restored shards served.
	// +optional
	LogicalClusters int64 `json:"logicalClusters,omitempty"`

	// message describes what the drill waits for, or why it failed.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message,omitempty"`
}

// RestoreDrillStatus describes the results of the drills.
type RestoreDrillStatus struct {
	// observedGeneration is the generation of the spec that was reconciled, -1 before the first.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// active is the drill that runs, or whose namespace is being deleted. Unset if there is none.
	// +optional
	Active *RestoreDrillRun `json:"active,omitempty"`

	// history has the last drills, the newest first. spec limits their number.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	History []RestoreDrillRun `json:"history,omitempty"`

	// lastScheduleTime is the time at which the last drill started.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`

	// lastSuccessfulTime is the time at which the last drill that succeeded ended.
	// +optional
	LastSuccessfulTime *metav1.Time `json:"lastSuccessfulTime,omitempty"`

	// lastResult is the result of the last drill that ended.
	// +optional
	LastResult RestoreDrillResult `json:"lastResult,omitempty"`

	// nextScheduleTime is the time at which the next drill is due. If several times pass while no operator runs, one
	// drill is started for them.
	// +optional
	NextScheduleTime *metav1.Time `json:"nextScheduleTime,omitempty"`

	// recoveryTime is the recoveryTime of the last drill that succeeded.
	// +optional
	RecoveryTime string `json:"recoveryTime,omitempty"`

	// dataLoss is the dataLoss of the last drill that succeeded.
	// +optional
	DataLoss string `json:"dataLoss,omitempty"`

	// conditions describe the state of the drills.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
