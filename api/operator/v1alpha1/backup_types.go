package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Backup saves an installation once: the etcds of its RootShard and Shards, and the Secrets that nothing else can make again. Deleting a
// Backup leaves what is in the store.
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

	// spec says what is saved, and where. It is immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a Backup is made once: create another one"
	Spec BackupSpec `json:"spec"`

	// status is what was saved.
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

// BackupSpec says what is saved, and where.
type BackupSpec struct {
	// rootShardRef names the RootShard of the installation.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.name) && self.name != ''",message="name must be set"
	RootShardRef corev1.LocalObjectReference `json:"rootShardRef"`

	// storeRef names the BackupStore.
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

// BackupStatus is what was saved.
type BackupStatus struct {
	// observedGeneration is the generation of the spec that was reconciled, -1 before the first.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase summarizes the conditions: Pending, Running, Completed or Failed.
	// +optional
	Phase BackupPhase `json:"phase,omitempty"`

	// backupId is the name of the backup in the store, once it is complete. It begins with the time of the creation of the Backup.
	// +optional
	BackupID string `json:"backupId,omitempty"`

	// destinationPath is the folder of the complete backup, s3://<bucket>/<prefix>/<namespace>/<RootShard>/<backupId>.
	// +optional
	DestinationPath string `json:"destinationPath,omitempty"`

	// startedAt is when the first pod was created, or, once it is completed, when the run that succeeded began.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// stoppedAt is when the backup was complete.
	// +optional
	StoppedAt *metav1.Time `json:"stoppedAt,omitempty"`

	// duration is the time between startedAt and stoppedAt.
	// +optional
	Duration string `json:"duration,omitempty"`

	// size of all objects in the store, rounded up.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// snapshotSize of all databases together, rounded up.
	// +optional
	SnapshotSize *resource.Quantity `json:"snapshotSize,omitempty"`

	// shards is the number of shards, including the root shard.
	// +optional
	Shards int32 `json:"shards,omitempty"`

	// logicalClusters is the number of logical clusters of all shards.
	// +optional
	LogicalClusters int64 `json:"logicalClusters,omitempty"`

	// secrets is the number of Secrets.
	// +optional
	Secrets int32 `json:"secrets,omitempty"`

	// manifestDigest is the SHA-256 digest of manifest.json. Keep it elsewhere to recognize a backup that was replaced in the store.
	// +optional
	ManifestDigest string `json:"manifestDigest,omitempty"`

	// conditions are the states of the backup.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
