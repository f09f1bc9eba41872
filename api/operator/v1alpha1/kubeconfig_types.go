package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kubeconfig requests a Secret with a kubeconfig and a client certificate.
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
	// target is the component at which the kubeconfig connects.
	// +required
	// +kubebuilder:validation:XValidation:rule="[has(self.rootShardRef), has(self.shardRef), has(self.frontProxyRef)].exists_one(x, x)",message="exactly one of rootShardRef, shardRef and frontProxyRef must be set"
	Target KubeconfigTarget `json:"target"`

	// targetWorkspace is the path of the workspace that the kubeconfig selects, and in which authorization grants
	// roles. Defaults to root.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(:[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`
	TargetWorkspace string `json:"targetWorkspace,omitempty"`

	// username is the name of the user: the common name of the certificate.
	// +required
	// +kubebuilder:validation:MinLength=1
	Username string `json:"username"`

	// groups are the groups of the user: the organizations of the certificate. system:masters has no effect through a
	// front proxy; the condition SpecHonored then says so.
	// +optional
	// +kubebuilder:validation:items:MinLength=1
	Groups []string `json:"groups,omitempty"`

	// validity is how long the certificate is valid, for example 8766h. At least 1h. cert-manager renews the
	// certificate before it expires, and the operator then updates the Secret.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1h')",message="validity is at least 1h, which is the minimum of cert-manager"
	Validity metav1.Duration `json:"validity"`

	// secretRef names the Secret in the same namespace that receives the kubeconfig, in its key kubeconfig.
	// +required
	SecretRef corev1.LocalObjectReference `json:"secretRef"`

	// certificateTemplate changes the client certificate.
	// +optional
	CertificateTemplate *CertificateTemplate `json:"certificateTemplate,omitempty"`

	// authorization grants roles in the workspace to the user. If unset, the user has only what others grant.
	// +optional
	Authorization *KubeconfigAuthorization `json:"authorization,omitempty"`

	// argoCD registers the workspace as a cluster of Argo CD. It has no effect unless the operator runs with
	// --argocd-namespace; the condition SpecHonored then says so.
	// +optional
	ArgoCD *KubeconfigArgoCD `json:"argoCD,omitempty"`
}

// KubeconfigArgoCD describes a workspace as a cluster of Argo CD.
type KubeconfigArgoCD struct {
	// clusterName is the name of the workspace in Argo CD. It must be unique among the clusters of Argo CD. Defaults
	// to the path of the workspace.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClusterName string `json:"clusterName,omitempty"`

	// project is the only project of Argo CD that may use the cluster. If unset, all projects may.
	// +optional
	Project string `json:"project,omitempty"`

	// labels are labels of the cluster in Argo CD, by which ApplicationSets can select it.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
}

// KubeconfigTarget is the component at which a kubeconfig connects. Exactly one field must be set. If an object of an
// older version has several, the first of rootShardRef, shardRef and frontProxyRef is used.
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
	// clusterRoleBindings are created in the workspace, and deleted with the Kubeconfig.
	// +required
	ClusterRoleBindings KubeconfigClusterRoleBindings `json:"clusterRoleBindings"`
}

// KubeconfigClusterRoleBindings lists the roles that are granted to a user.
type KubeconfigClusterRoleBindings struct {
	// cluster is the path or name of the logical cluster in which the bindings are created. It cannot be combined
	// with targetWorkspace. Deprecated: use targetWorkspace.
	// +optional
	Cluster string `json:"cluster,omitempty"`

	// clusterRoles are names of ClusterRoles in the workspace, each of which the user is bound to.
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

	// authorization describes where bindings exist.
	// +optional
	Authorization *KubeconfigAuthorizationStatus `json:"authorization,omitempty"`

	// argoCDSecret references the Secret that registers the workspace in Argo CD. Unset while there is none.
	// +optional
	ArgoCDSecret *corev1.SecretReference `json:"argoCDSecret,omitempty"`

	// conditions describe the state of the kubeconfig.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// KubeconfigAuthorizationStatus describes where bindings of a Kubeconfig exist.
type KubeconfigAuthorizationStatus struct {
	// provisionedCluster is the workspace with the bindings. Empty once they are removed.
	// +required
	ProvisionedCluster string `json:"provisionedCluster"`
}
