package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VirtualWorkspace runs a server of virtual workspaces for a shard: the standard one, or your own.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories={atoll,kcp}
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !self.metadata.name.contains('.')",message="the name of a VirtualWorkspace must not contain a dot: names of Services are made from it",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 45",message="the name of a VirtualWorkspace has at most 45 characters: names of Services are made from it",optionalOldSelf=true
type VirtualWorkspace struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the server.
	// +optional
	Spec VirtualWorkspaceSpec `json:"spec,omitzero"`

	// status is the observed state of the server.
	// +optional
	// +kubebuilder:default={}
	Status VirtualWorkspaceStatus `json:"status,omitzero"`
}

// VirtualWorkspaceList is a list of VirtualWorkspaces.
// +kubebuilder:object:root=true
type VirtualWorkspaceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []VirtualWorkspace `json:"items"`
}

// VirtualWorkspaceSpec is the desired state of a server of virtual workspaces.
type VirtualWorkspaceSpec struct {
	// target is the shard whose virtual workspaces are served.
	// +required
	Target VirtualWorkspaceTarget `json:"target"`

	// external is the address of the server. It is published as the URL of the virtual workspaces of the shard.
	// +required
	External ExternalConfig `json:"external"`

	// clusterDomain is the DNS domain of the cluster in which the server runs. Defaults to cluster.local.
	// +optional
	ClusterDomain string `json:"clusterDomain,omitempty"`

	// image is the container image of the server. If unset, the operator's default is used.
	// +optional
	Image *ImageSpec `json:"image,omitempty"`

	// command is the command of the server container. Defaults to /virtual-workspaces.
	// +optional
	Command []string `json:"command,omitempty"`

	// initContainers run one after another before the server starts. Each must succeed.
	// +optional
	// +listType=map
	// +listMapKey=name
	InitContainers []VirtualWorkspaceInitContainer `json:"initContainers,omitempty"`

	// replicas is the number of server pods. If unset, the operator starts with 2, and an autoscaler may change the
	// number.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// resources are the resources of the server container. They are merged into the defaults: requests of 1 CPU and
	// 1Gi, limits of 2 CPU and 2Gi.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// certificateTemplates change the certificates by name: server, client. Other names have no effect; the condition
	// SpecHonored lists them.
	// +optional
	CertificateTemplates CertificateTemplates `json:"certificateTemplates,omitempty"`

	// serviceTemplate changes the Service.
	// +optional
	ServiceTemplate *ServiceTemplate `json:"serviceTemplate,omitempty"`

	// deploymentTemplate changes the Deployment.
	// +optional
	DeploymentTemplate *DeploymentTemplate `json:"deploymentTemplate,omitempty"`

	// caBundleSecretRef names a Secret in the same namespace. The server trusts the CA certificates in its key
	// tls.crt, too, when it connects to other servers.
	// +optional
	CABundleSecretRef *corev1.LocalObjectReference `json:"caBundleSecretRef,omitempty"`

	// clientCABundleRef names a Secret in the same namespace. The server accepts client certificates that the CAs in
	// its key tls.crt have signed, too.
	// +optional
	ClientCABundleRef *corev1.LocalObjectReference `json:"clientCABundleRef,omitempty"`

	// kubeconfigSecretRef names a Secret in the same namespace, whose key kubeconfig has the credentials of the
	// server. If unset, the server uses the credentials of the target shard.
	// +optional
	KubeconfigSecretRef *corev1.LocalObjectReference `json:"kubeconfigSecretRef,omitempty"`

	ContainerExtras `json:",inline"`

	// logging configures the log verbosity of the server.
	// +optional
	Logging *LoggingSpec `json:"logging,omitempty"`
}

// VirtualWorkspaceTarget is the shard whose virtual workspaces are served.
// +kubebuilder:validation:XValidation:rule="has(self.rootShardRef) != has(self.shardRef)",message="exactly one of rootShardRef and shardRef must be set"
type VirtualWorkspaceTarget struct {
	// rootShardRef names a RootShard in the same namespace.
	// +optional
	RootShardRef *corev1.LocalObjectReference `json:"rootShardRef,omitempty"`

	// shardRef names a Shard in the same namespace.
	// +optional
	ShardRef *corev1.LocalObjectReference `json:"shardRef,omitempty"`
}

// VirtualWorkspaceInitContainer is a container that must succeed before the server starts.
type VirtualWorkspaceInitContainer struct {
	// name is the name of the container. It must be unique in the pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// image is the container image. If unset, the image of the server is used.
	// +optional
	Image *ImageSpec `json:"image,omitempty"`

	// command is the command of the container. If unset, the entrypoint of the image runs.
	// +optional
	Command []string `json:"command,omitempty"`

	// args are the arguments of the command.
	// +optional
	Args []string `json:"args,omitempty"`

	// kubeconfigSecretRef names a Secret in the same namespace, whose key kubeconfig has the credentials of the
	// container. If unset, the container gets administrator credentials for the target shard.
	// +optional
	KubeconfigSecretRef *corev1.LocalObjectReference `json:"kubeconfigSecretRef,omitempty"`

	// resources are the resources of the container. If unset, it has those of the server container.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// volumes are added to the pods.
	// +optional
	// +listType=map
	// +listMapKey=name
	Volumes []corev1.Volume `json:"volumes,omitempty"`

	// volumeMounts are added to this container.
	// +optional
	// +listType=map
	// +listMapKey=name
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
}

// VirtualWorkspacePhase summarizes the state of a VirtualWorkspace.
type VirtualWorkspacePhase string

// Phases of a VirtualWorkspace.
const (
	VirtualWorkspacePhaseProvisioning VirtualWorkspacePhase = "Provisioning"
	VirtualWorkspacePhaseRunning      VirtualWorkspacePhase = "Running"
	VirtualWorkspacePhaseDeleting     VirtualWorkspacePhase = "Deleting"
)

// VirtualWorkspaceStatus is the observed state of a server of virtual workspaces.
type VirtualWorkspaceStatus struct {
	// observedGeneration is the generation of the spec that was reconciled, -1 before the first.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase summarizes the conditions: Provisioning, Running or Deleting.
	// +optional
	Phase VirtualWorkspacePhase `json:"phase,omitempty"`

	// version is the image tag that all server pods run. Empty while they run different ones.
	// +optional
	Version string `json:"version,omitempty"`

	// endpoint is the URL at which clients reach the virtual workspaces.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// conditions describe the state of the server.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
