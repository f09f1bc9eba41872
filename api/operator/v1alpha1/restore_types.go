package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Restore fills a new installation from a backup: the Secrets of the bundle, and the etcds of its RootShard and Shards. The RootShard has the
// annotation operator.kcp.io/restore with the name of the Restore, and starts when it is completed. Whoever may create a Restore decides what
// Secrets and data the installation begins with.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories={atoll,kcp}
// +kubebuilder:printcolumn:name="RootShard",type=string,JSONPath=`.spec.rootShardRef.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Taken",type=date,JSONPath=`.status.backupTakenAt`
// +kubebuilder:printcolumn:name="Released",type=string,JSONPath=`.status.conditions[?(@.type=="Released")].status`
// +kubebuilder:printcolumn:name="Duration",type=string,JSONPath=`.status.duration`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Backup ID",type=string,priority=1,JSONPath=`.spec.backupId`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !self.metadata.name.contains('.')",message="the name of a Restore must not contain a dot: the names of its pods are made from it",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 40",message="the name of a Restore has at most 40 characters: the names of its pods are made from it",optionalOldSelf=true
type Restore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what is restored, and into which installation. It is immutable, except for release.
	// +required
	// +kubebuilder:validation:XValidation:rule="self.rootShardRef == oldSelf.rootShardRef && self.storeRef == oldSelf.storeRef && self.backupId == oldSelf.backupId && self.identity == oldSelf.identity",message="a Restore is made once, and only release can be changed: create another one"
	// +kubebuilder:validation:XValidation:rule="has(self.manifestDigest) == has(oldSelf.manifestDigest) && (!has(self.manifestDigest) || self.manifestDigest == oldSelf.manifestDigest)",message="manifestDigest is immutable: create another Restore"
	// +kubebuilder:validation:XValidation:rule="has(self.source) == has(oldSelf.source) && (!has(self.source) || self.source == oldSelf.source)",message="source is immutable: create another Restore"
	// +kubebuilder:validation:XValidation:rule="has(self.takeOver) == has(oldSelf.takeOver) && (!has(self.takeOver) || self.takeOver == oldSelf.takeOver)",message="takeOver is immutable: create another Restore"
	// +kubebuilder:validation:XValidation:rule="has(self.isolated) == has(oldSelf.isolated) && (!has(self.isolated) || self.isolated == oldSelf.isolated)",message="isolated is immutable: create another Restore"
	// +kubebuilder:validation:XValidation:rule="!has(oldSelf.release) || !oldSelf.release || (has(self.release) && self.release)",message="what is released cannot be held again"
	Spec RestoreSpec `json:"spec"`

	// status is what was restored.
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

// RestoreSpec says what is restored, and into which installation.
type RestoreSpec struct {
	// rootShardRef names the RootShard of the installation. It has the annotation operator.kcp.io/restore with the name of this Restore, and
	// has not started. It and its Shards have the names of those that were saved, and an etcd that the operator runs on volumes.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.name) && self.name != ''",message="name must be set"
	RootShardRef corev1.LocalObjectReference `json:"rootShardRef"`

	// storeRef names the BackupStore.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.name) && self.name != ''",message="name must be set"
	StoreRef corev1.LocalObjectReference `json:"storeRef"`

	// backupId is the name of the backup in the store: status.backupId of its Backup, or the first column of `etcd backup list`.
	// +required
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9-]*$`
	BackupID string `json:"backupId"`

	// manifestDigest is status.manifestDigest of the Backup. A backup with another manifest is refused. Without it, the backup is that of
	// whoever may write to the bucket.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	ManifestDigest string `json:"manifestDigest,omitempty"`

	// identity is the key of a Secret with identities (private keys) of age, one a line. Delete the Secret after the Restore.
	// +required
	Identity SecretKeyReference `json:"identity"`

	// source is the installation that was saved, if its namespace had another name than that of this Restore.
	// +optional
	Source *RestoreSource `json:"source,omitempty"`

	// takeOver confirms that the installation that was saved does not run any more, and never will. It is required if that was in another
	// namespace or another Kubernetes cluster: two installations must not live on one backup.
	// +optional
	TakeOver bool `json:"takeOver,omitempty"`

	// isolated restores a copy beside the installation that was saved, which goes on. Of the Secrets of the backup, the copy gets those that
	// its extraVolumes mount; its certificate authorities are new, so that it and the installation do not trust each other. It is for the
	// namespaces of RestoreDrills, and refused in others.
	// +optional
	Isolated bool `json:"isolated,omitempty"`

	// release lets the restored shards delete again what they do not find. Until then, they keep it. Set it after you have compared the
	// installation with what lives outside of it. It can be set only once.
	// +optional
	Release bool `json:"release,omitempty"`
}

// RestoreSource is the installation that was saved.
type RestoreSource struct {
	// namespace of the installation that was saved: a part of the path of the backup in the store.
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

// RestoreStatus is what was restored.
type RestoreStatus struct {
	// observedGeneration is the generation of the spec that was reconciled, -1 before the first.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase summarizes the conditions: Pending, Running, Completed or Failed.
	// +optional
	Phase RestorePhase `json:"phase,omitempty"`

	// backupTakenAt is the time of the data: writes after it are lost.
	// +optional
	BackupTakenAt *metav1.Time `json:"backupTakenAt,omitempty"`

	// manifestDigest is the SHA-256 digest of manifest.json: that of the spec, or, without it, of the backup that was found.
	// +optional
	ManifestDigest string `json:"manifestDigest,omitempty"`

	// startedAt is when the first object of the installation was restored.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// stoppedAt is when the last etcd was restored.
	// +optional
	StoppedAt *metav1.Time `json:"stoppedAt,omitempty"`

	// duration is the time between startedAt and stoppedAt.
	// +optional
	Duration string `json:"duration,omitempty"`

	// shards are the names of the shards that are restored, the root shard first.
	// +optional
	// +listType=atomic
	Shards []string `json:"shards,omitempty"`

	// secrets is the number of Secrets that the installation has of the backup.
	// +optional
	Secrets int32 `json:"secrets,omitempty"`

	// conditions are the states of the restore.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
