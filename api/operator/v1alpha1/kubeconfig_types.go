package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kubeconfig requests a kubeconfig with a client certificate, written into a Secret.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=kc,categories={atoll,kcp}
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.status.targetName`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Expires",type=string,priority=1,JSONPath=`.status.expiresAt`
type Kubeconfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the kubeconfig.
	// +optional
	Spec KubeconfigSpec `json:"spec,omitzero"`

	// status is the observed state of the kubeconfig.
	// +optional
	// +kubebuilder:default={}
	Status KubeconfigStatus `json:"status,omitzero"`
}

// KubeconfigList is a list of Kubeconfigs.
// +kubebuilder:object:root=true
type KubeconfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Kubeconfig `json:"items"`
}

// KubeconfigSpec is the desired state of a kubeconfig.
// +kubebuilder:validation:XValidation:rule="!has(self.targetWorkspace) || !has(self.authorization) || !has(self.authorization.clusterRoleBindings.cluster)",message="targetWorkspace and authorization.clusterRoleBindings.cluster exclude each other; cluster is deprecated"
type KubeconfigSpec struct {
	// target is the component the kubeconfig points at.
	// +required
	// +kubebuilder:validation:XValidation:rule="[has(self.rootShardRef), has(self.shardRef), has(self.frontProxyRef)].exists_one(x, x)",message="exactly one of rootShardRef, shardRef and frontProxyRef must be set"
	Target KubeconfigTarget `json:"target"`

	// targetWorkspace is the path of the workspace the kubeconfig points at and is authorized in. By default, it is
	// root.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(:[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`
	TargetWorkspace string `json:"targetWorkspace,omitempty"`

	// username becomes the common name of the certificate.
	// +required
	// +kubebuilder:validation:MinLength=1
	Username string `json:"username"`

	// groups become the organizations of the certificate.
	// +optional
	// +kubebuilder:validation:items:MinLength=1
	Groups []string `json:"groups,omitempty"`

	// validity of the certificate, for example 8766h, at least one hour. It is renewed in time.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1h')",message="validity is at least 1h, which is the minimum of cert-manager"
	Validity metav1.Duration `json:"validity"`

	// secretRef names the Secret that receives the kubeconfig under the key kubeconfig.
	// +required
	SecretRef corev1.LocalObjectReference `json:"secretRef"`

	// certificateTemplate changes the certificate.
	// +optional
	CertificateTemplate *CertificateTemplate `json:"certificateTemplate,omitempty"`

	// authorization grants roles in the workspace to the user.
	// +optional
	Authorization *KubeconfigAuthorization `json:"authorization,omitempty"`

	// argoCD registers the workspace as a cluster of Argo CD. It has an effect if the operator knows the namespace of Argo CD.
	// +optional
	ArgoCD *KubeconfigArgoCD `json:"argoCD,omitempty"`
}

// KubeconfigArgoCD describes a workspace to Argo CD.
type KubeconfigArgoCD struct {
	// clusterName is the name of the workspace in Argo CD, unique among its clusters. By default, it is the path of the workspace.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClusterName string `json:"clusterName,omitempty"`

	// project is the project of Argo CD that the cluster is limited to. By default, there is no limit.
	// +optional
	Project string `json:"project,omitempty"`

	// labels are labels of the cluster in Argo CD, by which ApplicationSets select it.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
}

// KubeconfigTarget is the component a kubeconfig points at. Exactly one field is set; in an object that an older version
// accepted with several, the first of rootShardRef, shardRef and frontProxyRef is used.
type KubeconfigTarget struct {
	// rootShardRef names a RootShard in the same namespace.
	// +optional
	RootShardRef *corev1.LocalObjectReference `json:"rootShardRef,omitempty"`

	// shardRef names a Shard in the same namespace.
	// +optional
	ShardRef *corev1.LocalObjectReference `json:"shardRef,omitempty"`

	// frontProxyRef names a FrontProxy in the same namespace.
	// +optional
	FrontProxyRef *corev1.LocalObjectReference `json:"frontProxyRef,omitempty"`
}

// KubeconfigAuthorization grants roles to the user of a kubeconfig.
type KubeconfigAuthorization struct {
	// clusterRoleBindings are created in the workspace and removed with the Kubeconfig.
	// +required
	ClusterRoleBindings KubeconfigClusterRoleBindings `json:"clusterRoleBindings"`
}

// KubeconfigClusterRoleBindings lists the roles that are granted to a user.
type KubeconfigClusterRoleBindings struct {
	// cluster is the path or name of the logical cluster the bindings are created in. Deprecated: use targetWorkspace.
	// +optional
	Cluster string `json:"cluster,omitempty"`

	// clusterRoles are names of ClusterRoles that exist in the workspace.
	// +required
	ClusterRoles []string `json:"clusterRoles"`
}

// KubeconfigPhase summarizes the state of a Kubeconfig.
type KubeconfigPhase string

// Phases of a Kubeconfig.
const (
	KubeconfigPhaseProvisioning KubeconfigPhase = "Provisioning"
	KubeconfigPhaseReady        KubeconfigPhase = "Ready"
	KubeconfigPhaseFailed       KubeconfigPhase = "Failed"
)

// KubeconfigStatus is the observed state of a kubeconfig.
type KubeconfigStatus struct {
	// observedGeneration is the generation of the spec that was reconciled, -1 before the first.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase summarizes the conditions: Provisioning, Ready or Failed.
	// +optional
	Phase KubeconfigPhase `json:"phase,omitempty"`

	// targetName is the kind and name of the target, for example FrontProxy/main.
	// +optional
	TargetName string `json:"targetName,omitempty"`

	// expiresAt is the time at which the certificate in the Secret expires, unless it is renewed before.
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`

	// authorization is the workspace in which bindings exist.
	// +optional
	Authorization *KubeconfigAuthorizationStatus `json:"authorization,omitempty"`

	// argoCDSecret is the Secret that registers the workspace in Argo CD.
	// +optional
	ArgoCDSecret *corev1.SecretReference `json:"argoCDSecret,omitempty"`

	// conditions are the states of the parts of the kubeconfig.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// KubeconfigAuthorizationStatus is the workspace in which bindings of a kubeconfig exist.
type KubeconfigAuthorizationStatus struct {
	// provisionedCluster is the workspace the bindings are in. Empty once they are removed.
	// +required
	ProvisionedCluster string `json:"provisionedCluster"`
}
