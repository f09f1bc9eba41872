package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// CommonShardSpec contains the settings of a shard server that a RootShard and a Shard have in common.
type CommonShardSpec struct {
	// clusterDomain is the DNS domain of the cluster the shard runs in. By default, it is cluster.local.
	// +optional
	ClusterDomain string `json:"clusterDomain,omitempty"`

	// shardBaseURL is the URL under which the other components reach the shard. By default, it is that of its Service.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == '' || self.startsWith('https://')",message="shardBaseURL is an https URL"
	ShardBaseURL string `json:"shardBaseURL,omitempty"`

	// etcd is the store of the shard. By default, the operator runs an etcd with one member on a persistent
	// volume claim of 8Gi.
	// +optional
	Etcd *EtcdConfig `json:"etcd,omitempty"`

	// image of the server.
	// +optional
	Image *ImageSpec `json:"image,omitempty"`

	// replicas is the number of server pods. By default, it is 2 at first and an autoscaler may change it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// resources of the server container. Default: requests of 1 CPU and 1Gi, limits of 2 CPU and 2Gi.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// audit configures the audit log.
	// +optional
	Audit *AuditSpec `json:"audit,omitempty"`

	// authorization configures an additional authorizer.
	// +optional
	Authorization *AuthorizationSpec `json:"authorization,omitempty"`

	// auth configures additional authentication methods.
	// +optional
	Auth *AuthSpec `json:"auth,omitempty"`

	// kcpVirtualWorkspace names a VirtualWorkspace that serves the virtual workspaces of this shard. By default, the
	// shard serves them itself.
	// +optional
	KCPVirtualWorkspace *corev1.LocalObjectReference `json:"kcpVirtualWorkspace,omitempty"`

	// certificateTemplates changes the certificates by name: server, virtual-workspaces, service-account, client,
	// logical-cluster-admin, external-logical-cluster-admin. A RootShard has kcp-operator and its CAs too (root-ca,
	// server-ca, client-ca, requestheader-client-ca, service-account-ca); a Shard has mounts-proxy.
	// +optional
	CertificateTemplates CertificateTemplates `json:"certificateTemplates,omitempty"`

	// serviceTemplate changes the Service.
	// +optional
	ServiceTemplate *ServiceTemplate `json:"serviceTemplate,omitempty"`

	// deploymentTemplate changes the Deployment.
	// +optional
	DeploymentTemplate *DeploymentTemplate `json:"deploymentTemplate,omitempty"`

	// caBundleSecretRef names a Secret whose key tls.crt holds CAs trusted in addition when reaching the external URL.
	// +optional
	CABundleSecretRef *corev1.LocalObjectReference `json:"caBundleSecretRef,omitempty"`

	// clientCABundleRef names a Secret whose key tls.crt holds CAs whose client certificates are accepted in addition.
	// +optional
	ClientCABundleRef *corev1.LocalObjectReference `json:"clientCABundleRef,omitempty"`

	ContainerExtras `json:",inline"`

	// logging configures the log verbosity of the server.
	// +optional
	Logging *LoggingSpec `json:"logging,omitempty"`
}
