package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Restore restores a backup into a new installation: Secrets, and the etcds of its shards; or the etcd of one shard, or
// one workspace, of an installation that runs. Users who may create a Restore decide which Secrets and data it starts
// with. The RootShard, or that Shard, needs the annotation operator.kcp.io/restore with the name of the Restore, and
// starts when that is completed.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories={atoll,kcp}
// +kubebuilder:printcolumn:name="RootShard",type=string,JSONPath=`.spec.rootShardRef.name`
// +kubebuilder:printcolumn:name="Shard",type=string,JSONPath=`.spec.shard.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Taken",type=date,JSONPath=`.status.backupTakenAt`
// +kubebuilder:printcolumn:name="Released",type=string,JSONPath=`.status.conditions[?(@.type=="Released")].status`
// +kubebuilder:printcolumn:name="Duration",type=string,JSONPath=`.status.duration`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Consistent",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Consistent")].status`
// +kubebuilder:printcolumn:name="Workspace",type=string,priority=1,JSONPath=`.spec.workspace.path`
// +kubebuilder:printcolumn:name="Backup ID",type=string,priority=1,JSONPath=`.spec.backupId`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !self.metadata.name.contains('.')",message="the name of a Restore must not contain a dot: the names of its pods are made from it",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 40",message="the name of a Restore has at most 40 characters: the names of its pods are made from it",optionalOldSelf=true
type Restore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines what is restored, and into which installation. Immutable, except for release.
	// +required
	// +kubebuilder:validation:XValidation:rule="self.rootShardRef == oldSelf.rootShardRef && self.storeRef == oldSelf.storeRef && self.backupId == oldSelf.backupId && self.identity == oldSelf.identity",message="a Restore is made once, and only release can be changed: create another one"
	// +kubebuilder:validation:XValidation:rule="has(self.manifestDigest) == has(oldSelf.manifestDigest) && (!has(self.manifestDigest) || self.manifestDigest == oldSelf.manifestDigest)",message="manifestDigest is immutable: create another Restore"
	// +kubebuilder:validation:XValidation:rule="has(self.source) == has(oldSelf.source) && (!has(self.source) || self.source == oldSelf.source)",message="source is immutable: create another Restore"
	// +kubebuilder:validation:XValidation:rule="has(self.takeOver) == has(oldSelf.takeOver) && (!has(self.takeOver) || self.takeOver == oldSelf.takeOver)",message="takeOver is immutable: create another Restore"
	// +kubebuilder:validation:XValidation:rule="has(self.isolated) == has(oldSelf.isolated) && (!has(self.isolated) || self.isolated == oldSelf.isolated)",message="isolated is immutable: create another Restore"
	// +kubebuilder:validation:XValidation:rule="has(self.shard) == has(oldSelf.shard) && (!has(self.shard) || self.shard == oldSelf.shard)",message="shard is immutable: create another Restore"
	// +kubebuilder:validation:XValidation:rule="!has(self.shard) || (!has(self.source) && (!has(self.takeOver) || !self.takeOver) && (!has(self.isolated) || !self.isolated))",message="source, takeOver and isolated are for whole installations: one shard is restored from a backup of the installation that runs"
	// +kubebuilder:validation:XValidation:rule="!has(self.shard) || self.shard.name != self.rootShardRef.name",message="shard.name must not be that of the RootShard: the root shard is restored with its installation, or by hand"
	// +kubebuilder:validation:XValidation:rule="has(self.workspace) == has(oldSelf.workspace) && (!has(self.workspace) || self.workspace == oldSelf.workspace)",message="workspace is immutable: create another Restore"
	// +kubebuilder:validation:XValidation:rule="!has(self.workspace) || !has(self.shard)",message="shard and workspace cannot both be set: a Restore brings back one of them"
	// +kubebuilder:validation:XValidation:rule="!has(self.workspace) || !has(self.source) && !(has(self.takeOver) && self.takeOver) && !(has(self.isolated) && self.isolated) && !(has(self.release) && self.release)",message="a workspace comes back to the installation that it was in, and nothing is held: source, takeOver, isolated and release cannot be set with workspace"
	// +kubebuilder:validation:XValidation:rule="!has(oldSelf.release) || !oldSelf.release || (has(self.release) && self.release)",message="what is released cannot be held again"
	Spec RestoreSpec `json:"spec"`

	// status describes what was restored.
	// +optional
	// +kubebuilder:default={}
	Status RestoreStatus `json:"status,omitzero"`
}

// RestoreList is a list of Restores.
// +kubebuilder:object:root=true
type RestoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Restore `json:"items"`
}

// RestoreSpec defines what is restored, and into which installation.
type RestoreSpec struct {
	// rootShardRef names the RootShard of the installation, in the same namespace. Unless shard or workspace is set, it
	// needs the annotation operator.kcp.io/restore: <name of this Restore>, and must not have started. It and its Shards
	// need the names of those that were saved, and an etcd that the operator runs on volumes.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.name) && self.name != ''",message="name must be set"
	RootShardRef corev1.LocalObjectReference `json:"rootShardRef"`

	// shard restores the etcd of one shard of an installation that runs, and nothing else. The operator stops the shard
	// for it.
	// +optional
	Shard *RestoreShard `json:"shard,omitempty"`

	// storeRef names the BackupStore with the backup, in the same namespace.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.name) && self.name != ''",message="name must be set"
	StoreRef corev1.LocalObjectReference `json:"storeRef"`

	// backupId is the name of the backup in the store: status.backupId of its Backup, or the first column of `etcd
	// backup list`.
	// +required
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9-]*$`
	BackupID string `json:"backupId"`

	// manifestDigest is status.manifestDigest of the Backup. A backup with another manifest is refused. If unset,
	// users who may write to the bucket can replace the backup.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	ManifestDigest string `json:"manifestDigest,omitempty"`

	// identity names the key of a Secret with private keys of age, one per line. Delete the Secret after the Restore.
	// +required
	Identity SecretKeyReference `json:"identity"`

	// source is the installation that was saved. If unset, its namespace had the name of the namespace of this
	// Restore.
	// +optional
	Source *RestoreSource `json:"source,omitempty"`

	// takeOver confirms that the installation that was saved does not run any more, and will not be started again:
	// two installations must not continue from one backup. It is required if that installation was in another
	// namespace or in another Kubernetes cluster. Defaults to false.
	// +optional
	TakeOver bool `json:"takeOver,omitempty"`

	// isolated restores a copy while the installation that was saved runs. The copy gets only the Secrets that its
	// extraVolumes mount, and new certificate authorities, so that it and the installation do not trust each other.
	// Allowed only in namespaces of RestoreDrills. Defaults to false.
	// +optional
	Isolated bool `json:"isolated,omitempty"`

	// workspace is the one workspace that is restored, into the installation of rootShardRef while that runs, with the
	// feature gate LogicalClusterMigration. If unset, a whole installation is restored before it starts.
	// +optional
	Workspace *RestoreWorkspace `json:"workspace,omitempty"`

	// release allows the restored shards to delete logical clusters and remains of moves that the backup does not
	// know, and BackupSchedules to remove Backups. Set it after you have compared the installation with what exists
	// outside of it. It cannot be set to false again. Defaults to false.
	// +optional
	Release bool `json:"release,omitempty"`
}

// RestoreSource is the installation that was saved.
type RestoreSource struct {
	// namespace is the namespace of the installation that was saved, which is part of the path of the backup in the
	// store.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`
}

// RestorePhase summarizes the state of a Restore.
type RestorePhase string

// Phases of a Restore. The last two are final, except for the release.
const (
	RestorePhasePending   RestorePhase = "Pending"
	RestorePhaseRunning   RestorePhase = "Running"
	RestorePhaseCompleted RestorePhase = "Completed"
	RestorePhaseFailed    RestorePhase = "Failed"
)

// RestoreStatus describes what was restored.
type RestoreStatus struct {
	// observedGeneration is the generation of the spec that was reconciled, -1 before the first.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase summarizes the conditions: Pending, Running, Completed or Failed.
	// +optional
	Phase RestorePhase `json:"phase,omitempty"`

	// backupTakenAt is the time of the data in the backup. Writes after it are lost.
	// +optional
	BackupTakenAt *metav1.Time `json:"backupTakenAt,omitempty"`

	// manifestDigest is the SHA-256 digest of manifest.json: the one in the spec or, if that is unset, the one of the
	// backup in the store.
	// +optional
	ManifestDigest string `json:"manifestDigest,omitempty"`

	// startedAt is the time at which the first object was restored.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// stoppedAt is the time at which the last etcd was restored.
	// +optional
	StoppedAt *metav1.Time `json:"stoppedAt,omitempty"`

	// duration is the time between startedAt and stoppedAt, for example 1m30s.
	// +optional
	Duration string `json:"duration,omitempty"`

	// shards are the names of the shards that are restored, the root shard first.
	// +optional
	// +listType=atomic
	Shards []string `json:"shards,omitempty"`

	// secrets is the number of Secrets that were restored.
	// +optional
	Secrets int32 `json:"secrets,omitempty"`

	// shard describes the restore of one shard.
	// +optional
	Shard *RestoreShardStatus `json:"shard,omitempty"`

	// conditions describe the state of the restore.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
