package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FrontProxy is the proxy through which clients reach all shards of a kcp installation.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=fp,categories={atoll,kcp}
// +kubebuilder:printcolumn:name="RootShard",type=string,JSONPath=`.spec.rootShard.ref.name`
// +kubebuilder:printcolumn:name="ExternalHostname",type=string,JSONPath=`.spec.externalHostname`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.endpoint`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !self.metadata.name.contains('.')",message="the name of a FrontProxy must not contain a dot: names of Services are made from it",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name != 'proxy'",message="the name proxy is that of the internal proxy of the RootShard",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !has(self.spec) || !has(self.spec.rootShard.ref) || !has(self.spec.rootShard.ref.name) || self.spec.rootShard.ref.name.size() + self.metadata.name.size() <= 43",message="the names of a FrontProxy and of its RootShard have at most 43 characters together: names of volumes are made from them",optionalOldSelf=true
type FrontProxy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the front proxy.
	// +optional
	Spec FrontProxySpec `json:"spec,omitzero"`

	// status is the observed state of the front proxy.
	// +optional
	// +kubebuilder:default={}
	Status FrontProxyStatus `json:"status,omitzero"`
}

// FrontProxyList is a list of FrontProxies.
// +kubebuilder:object:root=true
type FrontProxyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []FrontProxy `json:"items"`
}

// FrontProxySpec is the desired state of a front proxy.
// +kubebuilder:validation:XValidation:rule="!has(self.externalHostname) || !has(self.external) || !has(self.external.hostname)",message="externalHostname and external.hostname exclude each other; externalHostname is deprecated"
type FrontProxySpec struct {
	// rootShard names the RootShard of the installation that the front proxy serves.
	// +required
	RootShard RootShardReference `json:"rootShard"`

	// external is the address of this front proxy. If unset, or without a hostname, clients use the address of the
	// RootShard. privateHostname and privatePort have no effect here: shards use those of the RootShard.
	// +optional
	External *ExternalConfig `json:"external,omitempty"`

	// externalHostname is the host or host:port at which clients reach the proxy. It cannot be combined with
	// external.hostname. Deprecated: use external.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self.contains('/')",message="externalHostname is a host or host:port, without scheme and path"
	ExternalHostname string `json:"externalHostname,omitempty"`

	// replicas is the number of proxy pods. If unset, the operator starts with 2, and an autoscaler may change the
	// number.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// resources are the resources of the proxy container. They are merged into the defaults: a request of 256Mi
	// memory and a limit of 2Gi memory.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// auth configures authentication methods in addition to client certificates. With oidc, serviceAccount.enabled
	// must be true.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.oidc) || (has(self.serviceAccount) && self.serviceAccount.enabled)",message="oidc needs serviceAccount.enabled: true, else service account tokens would be refused"
	Auth *AuthSpec `json:"auth,omitempty"`

	// sharedIndex has credentials of this front proxy for the shared index of the installation. If unset, it uses
	// those of the RootShard. It has no effect if the installation has no shared index. It is an addition of Atoll.
	// +optional
	SharedIndex *SharedIndexClient `json:"sharedIndex,omitempty"`

	// additionalPathMappings route further URL paths to other servers. If unset, the proxy routes requests to shards
	// and their virtual workspaces only.
	// +optional
	AdditionalPathMappings []PathMapping `json:"additionalPathMappings,omitempty"`

	// image is the container image of the proxy. If unset, the operator's default is used.
	// +optional
	Image *ImageSpec `json:"image,omitempty"`

	// serviceTemplate changes the Service.
	// +optional
	ServiceTemplate *ServiceTemplate `json:"serviceTemplate,omitempty"`

	// deploymentTemplate changes the Deployment.
	// +optional
	DeploymentTemplate *DeploymentTemplate `json:"deploymentTemplate,omitempty"`

	// certificateTemplates change the certificates by name: server, kubeconfig, requestheader. Other names have no
	// effect; the condition SpecHonored lists them.
	// +optional
	CertificateTemplates CertificateTemplates `json:"certificateTemplates,omitempty"`

	// caBundleSecretRef names a Secret in the same namespace. The proxy trusts the CA certificates in its key
	// tls.crt, too, when it connects to servers, and generated kubeconfigs contain them.
	// +optional
	CABundleSecretRef *corev1.LocalObjectReference `json:"caBundleSecretRef,omitempty"`

	// clientCABundleRef names a Secret in the same namespace. The proxy accepts client certificates that the CAs in
	// its key tls.crt have signed, too.
	// +optional
	ClientCABundleRef *corev1.LocalObjectReference `json:"clientCABundleRef,omitempty"`

	ContainerExtras `json:",inline"`

	// logging configures the log verbosity of the proxy.
	// +optional
	Logging *LoggingSpec `json:"logging,omitempty"`
}

// PathMapping routes a URL path to a server. File paths are those inside the container of the proxy: mount the files
// by extraVolumes. Field names with underscores are those of kcp's mapping file.
type PathMapping struct {
	// path is the prefix of the URL paths that are routed to the server.
	// +required
	Path string `json:"path"`

	// backend is the URL of the server.
	// +required
	Backend string `json:"backend"`

	// backend_server_ca is the path of a file with the CA certificates by which the proxy verifies the server.
	// +required
	BackendServerCA string `json:"backend_server_ca"`

	// proxy_client_cert is the path of a file with the client certificate that the proxy presents to the server.
	// +required
	ProxyClientCert string `json:"proxy_client_cert"`

	// proxy_client_key is the path of a file with the private key of that certificate.
	// +required
	ProxyClientKey string `json:"proxy_client_key"`
}

// FrontProxyPhase summarizes the state of a FrontProxy.
type FrontProxyPhase string

// Phases of a FrontProxy.
const (
	FrontProxyPhaseProvisioning FrontProxyPhase = "Provisioning"
	FrontProxyPhaseRunning      FrontProxyPhase = "Running"
	FrontProxyPhaseDeleting     FrontProxyPhase = "Deleting"
)

// FrontProxyStatus is the observed state of a front proxy.
type FrontProxyStatus struct {
	// observedGeneration is the generation of the spec that was reconciled, -1 before the first.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase summarizes the conditions: Provisioning, Running or Deleting.
	// +optional
	Phase FrontProxyPhase `json:"phase,omitempty"`

	// version is the image tag that all proxy pods run. Empty while they run different ones.
	// +optional
	Version string `json:"version,omitempty"`

	// endpoint is the URL at which clients reach the front proxy.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// conditions describe the state of the front proxy.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
