package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// CommonShardSpec contains the settings of a shard server that a RootShard and a Shard have in common.
type CommonShardSpec struct {
	// clusterDomain is the DNS domain of the cluster in which the shard runs. Defaults to cluster.local.
	// +optional
	ClusterDomain string `json:"clusterDomain,omitempty"`

	// shardBaseURL is the https URL at which the other components reach the shard. Defaults to the URL of its
	// Service.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == '' || self.startsWith('https://')",message="shardBaseURL is an https URL"
	ShardBaseURL string `json:"shardBaseURL,omitempty"`

	// etcd is the store of the shard. If unset, the operator runs an etcd with one member on a persistent volume
	// claim of 8Gi.
	// +optional
	Etcd *EtcdConfig `json:"etcd,omitempty"`

	// image is the container image of the server. If unset, the operator's default is used.
	// +optional
	Image *ImageSpec `json:"image,omitempty"`

	// replicas is the number of server pods. If unset, the operator starts with 2, and an autoscaler may change the
	// number.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// resources are the resources of the server container. They are merged into the defaults: requests of 1 CPU and
	// 1Gi, limits of 2 CPU and 2Gi.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// audit configures the audit log. If unset, only the logs that workspaces read have requests.
	// +optional
	Audit *AuditSpec `json:"audit,omitempty"`

	// authorization configures an authorizer in addition to the built-in ones.
	// +optional
	Authorization *AuthorizationSpec `json:"authorization,omitempty"`

	// auth configures authentication methods in addition to client certificates.
	// +optional
	Auth *AuthSpec `json:"auth,omitempty"`

	// kcpVirtualWorkspace names a VirtualWorkspace in the same namespace that serves the virtual workspaces of this
	// shard. If unset, the shard serves them itself.
	// +optional
	KCPVirtualWorkspace *corev1.LocalObjectReference `json:"kcpVirtualWorkspace,omitempty"`

	// certificateTemplates change certificates by name: server, virtual-workspaces, service-account, client,
	// logical-cluster-admin, external-logical-cluster-admin; in a Shard mounts-proxy; in a RootShard kcp-operator,
	// root-ca, server-ca, client-ca, requestheader-client-ca, service-account-ca.
	// +optional
	CertificateTemplates CertificateTemplates `json:"certificateTemplates,omitempty"`

	// serviceTemplate changes the Service of the shard.
	// +optional
	ServiceTemplate *ServiceTemplate `json:"serviceTemplate,omitempty"`

	// deploymentTemplate changes the Deployment.
	// +optional
	DeploymentTemplate *DeploymentTemplate `json:"deploymentTemplate,omitempty"`

	// caBundleSecretRef names a Secret in the same namespace. The shard trusts the CA certificates in its key
	// tls.crt, too, when it connects to the external URL.
	// +optional
	CABundleSecretRef *corev1.LocalObjectReference `json:"caBundleSecretRef,omitempty"`

	// clientCABundleRef names a Secret in the same namespace. The shard accepts client certificates that the CAs in
	// its key tls.crt have signed, too.
	// +optional
	ClientCABundleRef *corev1.LocalObjectReference `json:"clientCABundleRef,omitempty"`

	ContainerExtras `json:",inline"`

	// logging configures the log verbosity of the server.
	// +optional
	Logging *LoggingSpec `json:"logging,omitempty"`
}
