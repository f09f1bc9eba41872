package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VirtualWorkspace runs a server of virtual workspaces beside a shard: the standard one, or a custom one.
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

	// external is the address that is published as the shard's virtual workspace URL.
	// +required
	External ExternalConfig `json:"external"`

	// clusterDomain is the DNS domain of the cluster the server runs in. By default, it is cluster.local.
	// +optional
	ClusterDomain string `json:"clusterDomain,omitempty"`

	// image of the server.
	// +optional
	Image *ImageSpec `json:"image,omitempty"`

	// command of the server container. By default, it is /virtual-workspaces.
	// +optional
	Command []string `json:"command,omitempty"`

	// initContainers run one after another before the server starts.
	// +optional
	// +listType=map
	// +listMapKey=name
	InitContainers []VirtualWorkspaceInitContainer `json:"initContainers,omitempty"`

	// replicas is the number of server pods. By default, it is 2 at first and an autoscaler may change it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// resources of the server container. Default: requests of 1 CPU and 1Gi, limits of 2 CPU and 2Gi.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// certificateTemplates changes the certificates by name: server, client.
	// +optional
	CertificateTemplates CertificateTemplates `json:"certificateTemplates,omitempty"`

	// serviceTemplate changes the Service.
	// +optional
	ServiceTemplate *ServiceTemplate `json:"serviceTemplate,omitempty"`

	// deploymentTemplate changes the Deployment.
	// +optional
	DeploymentTemplate *DeploymentTemplate `json:"deploymentTemplate,omitempty"`

	// caBundleSecretRef names a Secret whose key tls.crt holds CAs trusted in addition.
	// +optional
	CABundleSecretRef *corev1.LocalObjectReference `json:"caBundleSecretRef,omitempty"`

	// clientCABundleRef names a Secret whose key tls.crt holds CAs whose client certificates are accepted in addition.
	// +optional
	ClientCABundleRef *corev1.LocalObjectReference `json:"clientCABundleRef,omitempty"`

	// kubeconfigSecretRef names a Secret whose key kubeconfig holds the credentials the server uses. By default, they
	// are the target's own.
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
	// name of the container.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// image of the container. By default, it is the server's.
	// +optional
	Image *ImageSpec `json:"image,omitempty"`

	// command of the container.
	// +optional
	Command []string `json:"command,omitempty"`

	// args of the container's command.
	// +optional
	Args []string `json:"args,omitempty"`

	// kubeconfigSecretRef names a Secret whose key kubeconfig holds the credentials the container uses. By default, they
	// are the target's admin credentials.
	// +optional
	KubeconfigSecretRef *corev1.LocalObjectReference `json:"kubeconfigSecretRef,omitempty"`

	// resources of the container. By default, they are as for the server.
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

	// version is the image tag that all server pods run. Empty while they differ.
	// +optional
	Version string `json:"version,omitempty"`

	// endpoint is the URL under which the virtual workspaces are reached.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// conditions are the states of the parts of the server.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
