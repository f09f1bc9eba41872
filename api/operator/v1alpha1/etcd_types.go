package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Defaults of a managed etcd.
const (
	// DefaultEtcdReplicas is the number of members.
	DefaultEtcdReplicas int32 = 1
	// DefaultEtcdStorageSize is the size of each member's volume claim, a quantity.
	DefaultEtcdStorageSize = "8Gi"
)

// EtcdConfig is the store of a component: an etcd that exists (endpoints), or one that the operator runs
// for it (managed).
// +kubebuilder:validation:XValidation:rule="has(self.endpoints) != has(self.managed)",message="exactly one of endpoints and managed must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.managed) || !has(self.tlsConfig)",message="tlsConfig goes with endpoints: the operator makes the certificates of a managed etcd"
type EtcdConfig struct {
	// endpoints are the client URLs of an existing etcd, for example https://etcd-0.etcd:2379.
	// +optional
	// +kubebuilder:validation:items:Pattern=`^https?://[^/]+`
	Endpoints []string `json:"endpoints,omitempty"`

	// prefix is put before every key, so that several components can share one etcd. The default is that of the
	// server.
	// +optional
	Prefix string `json:"prefix,omitempty"`

	// tlsConfig holds the client credentials for endpoints.
	// +optional
	TLSConfig *EtcdTLSConfig `json:"tlsConfig,omitempty"`

	// managed configures an etcd that the operator runs. It is an addition of Atoll.
	// +optional
	Managed *ManagedEtcd `json:"managed,omitempty"`
}

// EtcdTLSConfig holds the credentials of an etcd client.
type EtcdTLSConfig struct {
	// secretRef names a Secret with the keys tls.crt, tls.key and ca.crt.
	// +required
	SecretRef corev1.LocalObjectReference `json:"secretRef"`
}

// ManagedEtcd describes an etcd that the operator runs, with TLS and a certificate for each side.
type ManagedEtcd struct {
	// replicas is the number of members: 1, or 3 to survive the loss of one. By default, it is 1.
	// +optional
	// +kubebuilder:validation:Enum=1;3
	Replicas *int32 `json:"replicas,omitempty"`

	// storage is the volume of each member. By default, it is a persistent volume claim of 8Gi.
	// +optional
	Storage *EtcdStorage `json:"storage,omitempty"`
}

// EtcdStatus is the observed state of an etcd that the operator runs.
type EtcdStatus struct {
	// clusterID is the ID of the cluster that holds the data. It is set once the cluster is bootstrapped.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`

	// defragmented is the last value of the annotation operator.kcp.io/defragment-etcd that was handled.
	// +optional
	Defragmented string `json:"defragmented,omitempty"`
}

// EtcdStorage is the storage of an etcd member: a persistent volume claim, unless emptyDir is set.
// +kubebuilder:validation:XValidation:rule="!has(self.emptyDir) || (!has(self.size) && !has(self.storageClassName))",message="emptyDir excludes size and storageClassName, which describe a persistent volume claim"
type EtcdStorage struct {
	// emptyDir keeps the data on the node for as long as the pod lives. ALL DATA IS LOST when the pod is deleted or
	// moves to another node: for trials only.
	// +optional
	EmptyDir *corev1.EmptyDirVolumeSource `json:"emptyDir,omitempty"`

	// size of each member's persistent volume claim. By default, it is 8Gi.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// storageClassName of the claims. By default, it is the cluster's default class.
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`
}
