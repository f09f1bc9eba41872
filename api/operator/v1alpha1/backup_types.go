package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Backup saves an installation once: the etcds of its RootShard and Shards, and the Secrets that cannot be created
// again. Deleting a Backup does not delete what is in the store.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories={atoll,kcp}
// +kubebuilder:printcolumn:name="RootShard",type=string,JSONPath=`.spec.rootShardRef.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Taken",type=date,JSONPath=`.status.stoppedAt`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Duration",type=string,JSONPath=`.status.duration`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Backup ID",type=string,priority=1,JSONPath=`.status.backupId`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !self.metadata.name.contains('.')",message="the name of a Backup must not contain a dot: the name of its pods is made from it",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 50",message="the name of a Backup has at most 50 characters: the name of its pods is made from it",optionalOldSelf=true
type Backup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines what is saved, and where. Immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a Backup is made once: create another one"
	Spec BackupSpec `json:"spec"`

	// status describes what was saved.
	// +optional
	// +kubebuilder:default={}
	Status BackupStatus `json:"status,omitzero"`
}

// BackupList is a list of Backups.
// +kubebuilder:object:root=true
type BackupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Backup `json:"items"`
}

// BackupSpec defines what is saved, and where.
type BackupSpec struct {
	// rootShardRef names the RootShard of the installation, in the same namespace. Immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.name) && self.name != ''",message="name must be set"
	RootShardRef corev1.LocalObjectReference `json:"rootShardRef"`

	// storeRef names the BackupStore that receives the backup, in the same namespace. Immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.name) && self.name != ''",message="name must be set"
	StoreRef corev1.LocalObjectReference `json:"storeRef"`
}

// BackupPhase summarizes the state of a Backup.
type BackupPhase string

// Phases of a Backup. The last two are final.
const (
	BackupPhasePending   BackupPhase = "Pending"
	BackupPhaseRunning   BackupPhase = "Running"
	BackupPhaseCompleted BackupPhase = "Completed"
	BackupPhaseFailed    BackupPhase = "Failed"
)

// BackupStatus describes what was saved.
type BackupStatus struct {
	// observedGeneration is the generation of the spec that was reconciled, -1 before the first.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase summarizes the conditions: Pending, Running, Completed or Failed. The last two are final.
	// +optional
	Phase BackupPhase `json:"phase,omitempty"`

	// backupId is the name of the backup in the store, which begins with the creation time of the Backup. Empty until
	// the backup is complete.
	// +optional
	BackupID string `json:"backupId,omitempty"`

	// destinationPath is the folder of the backup, s3://<bucket>/<prefix>/<namespace>/<RootShard>/<backupId>. Empty
	// until the backup is complete.
	// +optional
	DestinationPath string `json:"destinationPath,omitempty"`

	// startedAt is the time at which the first pod was created. Once the backup is complete, it is the time at which
	// the pod that succeeded began.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// stoppedAt is the time at which the backup was complete.
	// +optional
	StoppedAt *metav1.Time `json:"stoppedAt,omitempty"`

	// duration is the time between startedAt and stoppedAt, for example 1m30s.
	// +optional
	Duration string `json:"duration,omitempty"`

	// size is the total size of the objects in the store, rounded up.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// snapshotSize is the total size of the databases that were saved, rounded up.
	// +optional
	SnapshotSize *resource.Quantity `json:"snapshotSize,omitempty"`

	// shards is the number of shards that were saved, including the root shard.
	// +optional
	Shards int32 `json:"shards,omitempty"`

	// logicalClusters is the number of logical clusters on all shards that were saved.
	// +optional
	LogicalClusters int64 `json:"logicalClusters,omitempty"`

	// secrets is the number of Secrets that were saved.
	// +optional
	Secrets int32 `json:"secrets,omitempty"`

	// manifestDigest is the SHA-256 digest of the file manifest.json of the backup, in hexadecimal. Keep a copy
	// outside of the store, and set it in a Restore: a backup that somebody has replaced in the store is then
	// refused.
	// +optional
	ManifestDigest string `json:"manifestDigest,omitempty"`

	// conditions describe the state of the backup.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
