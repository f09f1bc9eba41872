package v1alpha1

// Condition types. Ready, Reconciling and Stalled have the meaning that kstatus gives them, so `kubectl wait`, Argo CD
// and Flux understand every kind alike; the others are about one part of the object.
const (
	// ConditionReady is True if the object matches its spec; otherwise it has the reason.
	ConditionReady = "Ready"
	// ConditionReconciling is True while the operator works towards the spec without the user.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True when nothing moves until the user changes what the message names.
	ConditionStalled = "Stalled"

	// ConditionAvailable is True when all wanted pods of the newest revision are ready; on a Kubeconfig, when its
	// Secret is written. Existing tools wait for this one.
	ConditionAvailable = "Available"
	// ConditionRootShard is True when the RootShard of a Shard or FrontProxy exists.
	ConditionRootShard = "RootShard"
	// ConditionReferenceValid is True when the target of a Kubeconfig or VirtualWorkspace exists.
	ConditionReferenceValid = "ReferenceValid"

	// ConditionCertificatesReady is True when every Certificate of the object is issued.
	ConditionCertificatesReady = "CertificatesReady"
	// ConditionEtcdAvailable is True when the etcd that the operator runs for the object has a quorum of ready members.
	ConditionEtcdAvailable = "EtcdAvailable"
	// ConditionProxyAvailable is True when the internal proxy of a RootShard has all its pods ready.
	ConditionProxyAvailable = "ProxyAvailable"
	// ConditionRolledOut is False while pods wait for their turn to be replaced, are being replaced, or did not become
	// healthy after that.
	ConditionRolledOut = "RolledOut"
	// ConditionWorkspacesGone exists while a Shard is being deleted, and is False while workspaces are on it.
	ConditionWorkspacesGone = "WorkspacesGone"
	// ConditionAuthorizationProvisioned is True when the bindings of a Kubeconfig exist in its workspace.
	ConditionAuthorizationProvisioned = "AuthorizationProvisioned"
	// ConditionSpecHonored is False when the spec sets fields that this version of the operator ignores; the message
	// lists them.
	ConditionSpecHonored = "SpecHonored"
)

// Condition reasons that existing tools use.
const (
	ReasonReplicasUp            = "ReplicasUp"            // Available=True
	ReasonReplicasUnavailable   = "ReplicasUnavailable"   // Available=False: the Deployment is there, its counts differ
	ReasonDeploymentUnavailable = "DeploymentUnavailable" // Available=False: there is no Deployment yet

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
