package v1alpha1

// Condition types. Ready, Reconciling and Stalled are defined as in kstatus, so that tools such as `kubectl wait`, Argo
// CD and Flux support every kind. The others describe one part of the object.
const (
	// ConditionReady is True if the object matches its spec. Otherwise, its reason and message describe the difference.
	ConditionReady = "Ready"
	// ConditionReconciling is True while the operator applies the spec and no user action is required.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True if the operator cannot proceed until the user resolves the problem described in the
	// message.
	ConditionStalled = "Stalled"

	// ConditionAvailable is True if as many pods as desired are ready, of the latest revision or an older one; for a
	// Kubeconfig, if its Secret is written. Existing tools wait for this condition.
	ConditionAvailable = "Available"
	// ConditionRootShard is True when the RootShard of a Shard or FrontProxy exists.
	ConditionRootShard = "RootShard"
	// ConditionReferenceValid is True when the target of a Kubeconfig or VirtualWorkspace exists.
	ConditionReferenceValid = "ReferenceValid"

	// ConditionCertificatesReady is True when every Certificate of the object is issued.
	ConditionCertificatesReady = "CertificatesReady"
	// ConditionEtcdAvailable is True when the etcd that the operator runs for the object has a quorum of ready members.
	ConditionEtcdAvailable = "EtcdAvailable"
	// ConditionEtcdHealthy is True when all members of the etcd that the operator runs serve and have space. While it is
	// False, the data is less redundant, or writes are rejected; the message has the next step.
	ConditionEtcdHealthy = "EtcdHealthy"
	// ConditionProxyAvailable is ConditionAvailable for the internal proxy of a RootShard.
	ConditionProxyAvailable = "ProxyAvailable"
	// ConditionRolledOut is False while pods are queued for replacement, are being replaced, or are not healthy after
	// their replacement.
	ConditionRolledOut = "RolledOut"
	// ConditionWorkspacesGone is set while a Shard or RootShard is being deleted. It is False while the Shard, or the
	// installation of the RootShard, contains workspaces.
	ConditionWorkspacesGone = "WorkspacesGone"
	// ConditionDrained is set while a Shard has spec.drain. It is True when nothing but what belongs to the shard is left on it.
	ConditionDrained = "Drained"
	// ConditionBalanced is set while a RootShard has spec.rebalance with another mode than Off. It is True when no shard has more workspaces
	// than its share and the threshold.
	ConditionBalanced = "Balanced"
	// ConditionCertificatesRekeyed is set on a RootShard whose certificate authorities are being re-keyed, or have been. It is True when no
	// re-keying is in progress.
	ConditionCertificatesRekeyed = "CertificatesRekeyed"
	// ConditionAuthorizationProvisioned is True when the bindings of a Kubeconfig exist in its workspace.
	ConditionAuthorizationProvisioned = "AuthorizationProvisioned"
	// ConditionArgoCDRegistered is True when the workspace of a Kubeconfig is a cluster of Argo CD.
	ConditionArgoCDRegistered = "ArgoCDRegistered"
	// ConditionReachable is True when the server of a BackupStore lists the bucket with the credentials.
	ConditionReachable = "Reachable"
	// ConditionCompleted is True when everything of a Backup is in the store, or everything of a Restore in the volumes of the installation.
	ConditionCompleted = "Completed"
	// ConditionReleased is False from the completion of a Restore until its spec.release has taken effect in all shards: until then, they delete
	// nothing because it is absent.
	ConditionReleased = "Released"
	// ConditionConsistent is set when a Restore of one shard is completed. It is False while Workspaces lack their logical clusters, or logical
	// clusters their Workspaces, or the shards could not be compared. After the release, it stays as it was.
	ConditionConsistent = "Consistent"
	// ConditionScheduled is True when a BackupSchedule creates Backups, or a RestoreDrill starts drills, when they are due. It is False after a
	// time at which it could not.
	ConditionScheduled = "Scheduled"
	// ConditionCurrent is False when two Backups in a row that were due by a BackupSchedule have not been completed, and when the last drill of
	// a RestoreDrill has failed, or two in a row that were due have not succeeded.
	ConditionCurrent = "Current"
	// ConditionRetentionEnforced is set while a BackupSchedule has spec.retention. It is False while the store refuses to remove what is not
	// to be kept.
	ConditionRetentionEnforced = "RetentionEnforced"
	// ConditionSpecHonored is False when the spec sets fields that this version of the operator ignores; the message
	// lists them.
	ConditionSpecHonored = "SpecHonored"
)

// Condition reasons that existing tools use.
const (
	ReasonReplicasUp            = "ReplicasUp"            // Available=True
	ReasonReplicasUnavailable   = "ReplicasUnavailable"   // Available=False: the Deployment is there, its counts differ
	ReasonDeploymentUnavailable = "DeploymentUnavailable" // Available=False: there is no Deployment yet

	ReasonAwaitsRestore = "AwaitsRestore" // Available=False: a Restore fills the etcds before they start

	ReasonDraining        = "Draining"        // Drained=False: workspaces move, or are tried again
	ReasonRefused         = "Refused"         // Drained=False: nothing moves; the message has the reasons
	ReasonFeatureDisabled = "FeatureDisabled" // Drained=False, Balanced=False: the installation moves no workspaces

	ReasonSuggested      = "Suggested"      // Balanced=False: status.rebalance has what would be moved
	ReasonMoving         = "Moving"         // Balanced=False: workspaces move
	ReasonOutsideWindow  = "OutsideWindow"  // Balanced=False: the next window is waited for
	ReasonNothingMovable = "NothingMovable" // Balanced=False: a shard has too much, and nothing of it can be moved

	ReasonTrustBoth = "TrustBoth" // CertificatesRekeyed=False: servers learn to trust the new key, too
	ReasonIssue     = "Issue"     // CertificatesRekeyed=False: certificates are issued by the new key
	ReasonRetire    = "Retire"    // CertificatesRekeyed=False: servers cease to trust the previous key
	ReasonRetired   = "Retired"   // CertificatesRekeyed=False: the spec names a generation that has been retired
	ReasonRekeyed   = "Rekeyed"   // CertificatesRekeyed=True
	// ReasonRekeyBlocked is of CertificatesRekeyed=False: a re-keying cannot begin.
	ReasonRekeyBlocked = "Blocked"

	ReasonValid            = "Valid"            // RootShard=True
	ReasonInvalidReference = "InvalidReference" // RootShard=False

	ReasonReferenceValid    = "ReferenceValid"    // ReferenceValid=True
	ReasonReferenceNotFound = "ReferenceNotFound" // ReferenceValid=False

	ReasonSecretsReady                    = "SecretsReady"                    // Kubeconfig: Available=True
	ReasonClientCertificateSecretNotReady = "ClientCertificateSecretNotReady" // Kubeconfig: Available=False, waiting
	ReasonServerCASecretNotReady          = "ServerCASecretNotReady"          // Kubeconfig: Available=False, waiting
	ReasonClientCertificateSecretError    = "ClientCertificateSecretError"    // Kubeconfig: Available=False, cannot read
	ReasonServerCASecretError             = "ServerCASecretError"             // Kubeconfig: Available=False, cannot read
)
