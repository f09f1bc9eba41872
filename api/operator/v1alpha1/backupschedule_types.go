package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BackupSchedule creates Backups of an installation on a schedule, and removes old ones. Deleting a BackupSchedule
// deletes neither its Backups nor what is in the store.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories={atoll,kcp}
// +kubebuilder:printcolumn:name="RootShard",type=string,JSONPath=`.spec.rootShardRef.name`
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec.schedule`
// +kubebuilder:printcolumn:name="Suspend",type=boolean,JSONPath=`.spec.suspend`
// +kubebuilder:printcolumn:name="Last",type=date,JSONPath=`.status.lastScheduleTime`
// +kubebuilder:printcolumn:name="Successful",type=date,JSONPath=`.status.lastSuccessfulTime`
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextScheduleTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Store",type=string,priority=1,JSONPath=`.spec.storeRef.name`
// +kubebuilder:printcolumn:name="Last Backup",type=string,priority=1,JSONPath=`.status.lastBackup`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !self.metadata.name.contains('.')",message="the name of a BackupSchedule must not contain a dot: the names of its Backups are made from it",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 35",message="the name of a BackupSchedule has at most 35 characters: the names of its Backups are made from it",optionalOldSelf=true
type BackupSchedule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines when Backups are created, of what, and how long they are kept.
	// +required
	// +kubebuilder:validation:XValidation:rule="self.rootShardRef == oldSelf.rootShardRef",message="rootShardRef is immutable: create another BackupSchedule"
	// +kubebuilder:validation:XValidation:rule="self.storeRef == oldSelf.storeRef",message="storeRef is immutable: create another BackupSchedule, and suspend this one"
	Spec BackupScheduleSpec `json:"spec"`

	// status is the observed state of the schedule.
	// +optional
	// +kubebuilder:default={}
	Status BackupScheduleStatus `json:"status,omitzero"`
}

// BackupScheduleList is a list of BackupSchedules.
// +kubebuilder:object:root=true
type BackupScheduleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []BackupSchedule `json:"items"`
}

// BackupScheduleSpec defines when Backups are created, of what, and how long they are kept. It has the fields of a
// Backup.
type BackupScheduleSpec struct {
	BackupSpec `json:",inline"`

	// schedule is the times at which Backups are created, in the format of cron: minute, hour, day of month, month,
	// day of week. @hourly, @daily, @weekly, @monthly and @yearly are possible, too.
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

	// suspend stops the creation and the removal of Backups. Backups that were due meanwhile are not created later.
	// Defaults to false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// immediate creates the first Backup as soon as the schedule exists, instead of at its first time. Defaults to
	// false.
	// +optional
	Immediate bool `json:"immediate,omitempty"`

	// retention defines how long the Backups of this schedule are kept. If unset, none are removed.
	// +optional
	Retention *BackupRetention `json:"retention,omitempty"`
}

// BackupRetention defines which Backups are kept: those that keepLast or keepWithin keeps, and always the last one
// that was completed. The operator removes the others from the store, and then from the cluster.
// +kubebuilder:validation:XValidation:rule="has(self.keepLast) || has(self.keepWithin)",message="set keepLast, keepWithin, or both"
type BackupRetention struct {
	// keepLast is the number of completed Backups to keep. If unset, keepWithin alone decides.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	KeepLast *int32 `json:"keepLast,omitempty"`

	// keepWithin keeps completed Backups that are at most this much older than the last completed one, for example
	// 720h. At least 1h. Age counts from the last completed Backup, so none are removed while Backups fail. If unset,
	// keepLast alone decides.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1h')",message="keepWithin is at least 1h"
	KeepWithin *metav1.Duration `json:"keepWithin,omitempty"`

	// s3Credentials are those with which the operator removes objects: s3:ListBucket, s3:DeleteObject,
	// s3:ListBucketMultipartUploads, s3:AbortMultipartUpload. If unset, it uses those of the BackupStore, which need
	// these permissions: then the pods that save can remove Backups, too.
	// +optional
	S3Credentials *S3Credentials `json:"s3Credentials,omitempty"`
}

// BackupScheduleStatus is the observed state of a BackupSchedule.
type BackupScheduleStatus struct {
	// observedGeneration is the generation of the spec that was reconciled, -1 before the first.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// lastScheduleTime is the time at which the last Backup was created.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`

	// lastBackup is the name of the Backup that was created last.
	// +optional
	LastBackup string `json:"lastBackup,omitempty"`

	// lastSuccessfulTime is the time at which the last completed Backup was complete.
	// +optional
	LastSuccessfulTime *metav1.Time `json:"lastSuccessfulTime,omitempty"`

	// nextScheduleTime is the time at which the next Backup is due. If several times pass while no operator runs, one
	// Backup is created for them.
	// +optional
	NextScheduleTime *metav1.Time `json:"nextScheduleTime,omitempty"`

	// lastRetentionTime is the time at which the operator last checked which Backups to remove.
	// +optional
	LastRetentionTime *metav1.Time `json:"lastRetentionTime,omitempty"`

	// conditions describe the state of the schedule.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
