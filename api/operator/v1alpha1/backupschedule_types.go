package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BackupSchedule creates Backups of an installation at given times, and removes old ones. Deleting a BackupSchedule leaves its Backups, and
// what is in the store.
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

	// spec says when Backups are created, of what, and how long they are kept.
	// +required
	// +kubebuilder:validation:XValidation:rule="self.rootShardRef == oldSelf.rootShardRef",message="rootShardRef is immutable: create another BackupSchedule"
	// +kubebuilder:validation:XValidation:rule="self.storeRef == oldSelf.storeRef",message="storeRef is immutable: create another BackupSchedule, and suspend this one"
	Spec BackupScheduleSpec `json:"spec"`

	// status is what the schedule has done.
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

// BackupScheduleSpec says when Backups are created, of what, and how long they are kept. It has the fields of a Backup.
type BackupScheduleSpec struct {
	BackupSpec `json:",inline"`

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

	// suspend stops the creation of Backups, and their removal. Times that pass meanwhile are not made up for.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// immediate creates the first Backup as soon as the schedule exists.
	// +optional
	Immediate bool `json:"immediate,omitempty"`

	// retention is how long the Backups of this schedule are kept. By default, nothing is removed.
	// +optional
	Retention *BackupRetention `json:"retention,omitempty"`
}

// BackupRetention is which Backups are kept: those that one of its rules keeps, and always the last that was completed. Others are removed
// from the store, and then from the cluster.
// +kubebuilder:validation:XValidation:rule="has(self.keepLast) || has(self.keepWithin)",message="set keepLast, keepWithin, or both"
type BackupRetention struct {
	// keepLast is the number of completed Backups to keep.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	KeepLast *int32 `json:"keepLast,omitempty"`

	// keepWithin keeps completed Backups that are at most so much older than the last one, for example 720h. Nothing becomes too old
	// while no Backup is completed.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1h')",message="keepWithin is at least 1h"
	KeepWithin *metav1.Duration `json:"keepWithin,omitempty"`

	// s3Credentials are credentials that may remove objects. Only the operator uses them. By default, they are those of the BackupStore, and
	// the pods that save the installation can remove Backups, too. They need s3:ListBucket, s3:DeleteObject, s3:ListBucketMultipartUploads
	// and s3:AbortMultipartUpload.
	// +optional
	S3Credentials *S3Credentials `json:"s3Credentials,omitempty"`
}

// BackupScheduleStatus is what a schedule has done.
type BackupScheduleStatus struct {
	// observedGeneration is the generation of the spec that was reconciled, -1 before the first.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// lastScheduleTime is when the last Backup was created.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`

	// lastBackup is the name of the last Backup that was created.
	// +optional
	LastBackup string `json:"lastBackup,omitempty"`

	// lastSuccessfulTime is when the last Backup that was completed had ended.
	// +optional
	LastSuccessfulTime *metav1.Time `json:"lastSuccessfulTime,omitempty"`

	// nextScheduleTime is when the next Backup is due. A time that has passed while no operator ran is made up for once.
	// +optional
	NextScheduleTime *metav1.Time `json:"nextScheduleTime,omitempty"`

	// lastRetentionTime is when the operator last looked for Backups to remove.
	// +optional
	LastRetentionTime *metav1.Time `json:"lastRetentionTime,omitempty"`

	// conditions are the states of the schedule.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
