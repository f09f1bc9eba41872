package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CacheServer is a server through which the shards of an installation replicate objects.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories={atoll,kcp}
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !self.metadata.name.contains('.')",message="the name of a CacheServer must not contain a dot: names of Services are made from it",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 50",message="the name of a CacheServer has at most 50 characters: names of Services are made from it",optionalOldSelf=true
type CacheServer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the cache server.
	// +optional
	Spec CacheServerSpec `json:"spec,omitzero"`

	// status is the observed state of the cache server.
	// +optional
	// +kubebuilder:default={}
	Status CacheServerStatus `json:"status,omitzero"`
}

// CacheServerList is a list of CacheServers.
// +kubebuilder:object:root=true
type CacheServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []CacheServer `json:"items"`
}

// CacheServerSpec is the desired state of a cache server.
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || self.replicas <= 1 || has(self.etcd)",message="more than one replica needs etcd: the embedded store belongs to one pod"
type CacheServerSpec struct {
	// clusterDomain is the DNS domain of the cluster in which the server runs. Defaults to cluster.local.
	// +optional
	ClusterDomain string `json:"clusterDomain,omitempty"`

	// image is the container image of the server. If unset, the operator's default is used.
	// +optional
	Image *ImageSpec `json:"image,omitempty"`

	// replicas is the number of server pods. More than one needs etcd. Defaults to 1 without etcd and to 2 with etcd.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// resources are the resources of the server container. They are merged into the defaults: requests of 500m CPU
	// and 1Gi, limits of 1 CPU and 2Gi.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// logging configures the log verbosity of the server.
	// +optional
	Logging *LoggingSpec `json:"logging,omitempty"`

	// certificates is the source of the certificate authority. If unset, the operator creates a self-signed one.
	// +optional
	Certificates Certificates `json:"certificates,omitzero"`

	// certificateTemplates changes the certificates by name: server, client, parent-client, root-ca.
	// +optional
	CertificateTemplates CertificateTemplates `json:"certificateTemplates,omitempty"`

	// serviceTemplate changes the Service.
	// +optional
	ServiceTemplate *ServiceTemplate `json:"serviceTemplate,omitempty"`

	// deploymentTemplate changes the Deployment.
	// +optional
	DeploymentTemplate *DeploymentTemplate `json:"deploymentTemplate,omitempty"`

	// etcd is the store of the server. If unset, the server stores objects in an etcd that is embedded in its pod;
	// shards publish their objects again if the pod loses them.
	// +optional
	Etcd *EtcdConfig `json:"etcd,omitempty"`

	// cacheName is the name of this cache among the caches of its hierarchy. It must be unique in the hierarchy; do
	// not change it later. Defaults to the name of the object. It is an addition of Atoll.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	CacheName string `json:"cacheName,omitempty"`

	// parent is the cache above this one: objects with global reach are copied to it and from it. If unset, there is
	// no cache above. It is an addition of Atoll.
	// +optional
	Parent *CacheParent `json:"parent,omitempty"`

	ContainerExtras `json:",inline"`
}

// CacheParent is the cache above another one, with the credentials for it.
// +kubebuilder:validation:XValidation:rule="[has(self.cacheServerRef), has(self.rootShardRef), has(self.kubeconfigSecretRef)].exists_one(x, x)",message="exactly one of cacheServerRef, rootShardRef and kubeconfigSecretRef must be set"
type CacheParent struct {
	// cacheServerRef names a CacheServer in the same namespace. The operator issues the credentials.
	// +optional
	CacheServerRef *corev1.LocalObjectReference `json:"cacheServerRef,omitempty"`

	// rootShardRef names a RootShard in the same namespace that embeds the cache of its installation. The operator
	// issues the credentials.
	// +optional
	RootShardRef *corev1.LocalObjectReference `json:"rootShardRef,omitempty"`

	// kubeconfigSecretRef names a Secret in the same namespace, whose key kubeconfig has the address and the
	// credentials of any other cache. The user must be system:kcp:cache:<cacheName> in the group system:kcp:cache;
	// certificates must be embedded in the kubeconfig.
	// +optional
	KubeconfigSecretRef *corev1.LocalObjectReference `json:"kubeconfigSecretRef,omitempty"`
}

// CacheServerPhase summarizes the state of a CacheServer.
type CacheServerPhase string

// Phases of a CacheServer.
const (
	CacheServerPhaseProvisioning CacheServerPhase = "Provisioning"
	CacheServerPhaseRunning      CacheServerPhase = "Running"
	CacheServerPhaseDeleting     CacheServerPhase = "Deleting"
)

// CacheServerStatus is the observed state of a cache server.
type CacheServerStatus struct {
	// observedGeneration is the generation of the spec that was reconciled, -1 before the first.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase summarizes the conditions: Provisioning, Running or Deleting.
	// +optional
	Phase CacheServerPhase `json:"phase,omitempty"`

	// version is the image tag that all server pods run. Empty while they run different ones.
	// +optional
	Version string `json:"version,omitempty"`

	// endpoint is the URL under which shards reach the cache server.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// etcd is the state of the etcd that the operator runs for the cache server. Unset if it runs none. It is an
	// addition of Atoll.
	// +optional
	Etcd *EtcdStatus `json:"etcd,omitempty"`

	// conditions describe the state of the cache server.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
