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

// EtcdConfig is the store of a component: an existing etcd (endpoints), or one that the operator runs for it
// (managed). Exactly one of both must be set.
// +kubebuilder:validation:XValidation:rule="has(self.endpoints) != has(self.managed)",message="exactly one of endpoints and managed must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.managed) || !has(self.tlsConfig)",message="tlsConfig goes with endpoints: the operator makes the certificates of a managed etcd"
type EtcdConfig struct {
	// endpoints are the client URLs of an existing etcd, for example https://etcd-0.etcd:2379.
	// +optional
	// +kubebuilder:validation:items:Pattern=`^https?://[^/]+`
	Endpoints []string `json:"endpoints,omitempty"`

	// prefix is put before every key, so that several components can share one etcd. Defaults to /registry for shards
	// and to /cache for cache servers.
	// +optional
	Prefix string `json:"prefix,omitempty"`

	// tlsConfig has the client credentials for endpoints. If unset, clients connect without credentials. It cannot be
	// combined with managed, for which the operator creates certificates.
	// +optional
	TLSConfig *EtcdTLSConfig `json:"tlsConfig,omitempty"`

	// managed describes an etcd that the operator runs. It is an addition of Atoll.
	// +optional
	Managed *ManagedEtcd `json:"managed,omitempty"`
}

// EtcdTLSConfig has the credentials of an etcd client.
type EtcdTLSConfig struct {
	// secretRef names a Secret in the same namespace with a client certificate (tls.crt), its private key (tls.key)
	// and the CA certificates of the etcd (ca.crt).
	// +required
	SecretRef corev1.LocalObjectReference `json:"secretRef"`
}

// ManagedEtcd describes an etcd that the operator runs. Its members and clients authenticate to each other by
// certificates.
type ManagedEtcd struct {
	// replicas is the number of members: 1, or 3, which tolerate the failure of one. Defaults to 1.
	// +optional
	// +kubebuilder:validation:Enum=1;3
	Replicas *int32 `json:"replicas,omitempty"`

	// storage is the volume of each member. Defaults to a persistent volume claim of 8Gi.
	// +optional
	Storage *EtcdStorage `json:"storage,omitempty"`
}

// EtcdStatus is the observed state of an etcd that the operator runs.
type EtcdStatus struct {
	// clusterID is the ID of the etcd cluster with the data. Empty until the cluster is bootstrapped.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`

	// defragmented is the value of the annotation operator.kcp.io/defragment-etcd for which the operator has
	// defragmented the etcd last.
	// +optional
	Defragmented string `json:"defragmented,omitempty"`
}

// EtcdStorage is the storage of an etcd member: a persistent volume claim, unless emptyDir is set.
// +kubebuilder:validation:XValidation:rule="!has(self.emptyDir) || (!has(self.size) && !has(self.storageClassName))",message="emptyDir excludes size and storageClassName, which describe a persistent volume claim"
type EtcdStorage struct {
	// emptyDir stores the data on the node while the pod exists. ALL DATA IS LOST when the pod is deleted or moves to
	// another node: use it for trials only. It cannot be combined with size and storageClassName.
	// +optional
	EmptyDir *corev1.EmptyDirVolumeSource `json:"emptyDir,omitempty"`

	// size is the size of the persistent volume claim of each member. Defaults to 8Gi.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// storageClassName is the storage class of the claims. Defaults to the default class of the cluster.
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`
}
