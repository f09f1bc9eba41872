package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BackupStore is a bucket of an S3 server for backups of installations in its namespace, and the public keys to which
// backups are encrypted. Users who may create a BackupStore and a Backup can read the Secrets of these installations.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories={atoll,kcp}
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.spec.endpointURL`
// +kubebuilder:printcolumn:name="Bucket",type=string,JSONPath=`.spec.bucket`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type BackupStore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes the store.
	// +required
	Spec BackupStoreSpec `json:"spec"`

	// status is the observed state of the store.
	// +optional
	// +kubebuilder:default={}
	Status BackupStoreStatus `json:"status,omitzero"`
}

// BackupStoreList is a list of BackupStores.
// +kubebuilder:object:root=true
type BackupStoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []BackupStore `json:"items"`
}

// BackupStoreSpec describes a bucket.
type BackupStoreSpec struct {
	// endpointURL is the URL of the S3 server, without the bucket. Backups are encrypted in either case, but with
	// http, others on the network see the sizes and times of requests.
	// +required
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@]+/?$`
	EndpointURL string `json:"endpointURL"`

	// bucket is the name of the bucket. The operator does not create it.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9.-]+[a-z0-9]$`
	Bucket string `json:"bucket"`

	// prefix is put before the keys of all objects, which continue with the namespace and the name of the RootShard.
	// It has no slash at its beginning and end. If unset, keys have no prefix.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$`
	// +kubebuilder:validation:XValidation:rule="!self.split('/').exists(part, part == '.' || part == '..')",message="prefix has no parts . and .."
	Prefix string `json:"prefix,omitempty"`

	// region is the region of the bucket. Defaults to us-east-1, which S3 servers without regions expect.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Region string `json:"region,omitempty"`

	// addressingStyle is where requests name the bucket: in the path of the URL (Path), or in its host name
	// (VirtualHosted). Defaults to Path.
	// +optional
	// +kubebuilder:validation:Enum=Path;VirtualHosted
	AddressingStyle BackupAddressingStyle `json:"addressingStyle,omitempty"`

	// s3Credentials are the credentials for the bucket. They need s3:ListBucket, s3:GetObject and s3:PutObject.
	// +required
	S3Credentials S3Credentials `json:"s3Credentials"`

	// endpointCA names the key of a Secret with CA certificates in PEM, by which the serving certificate of the S3
	// server is verified. If unset, public CAs are trusted.
	// +optional
	EndpointCA *SecretKeyReference `json:"endpointCA,omitempty"`

	// encryption has the public keys to which backups are encrypted.
	// +required
	Encryption BackupEncryption `json:"encryption"`

	// maxUploadRate limits the bytes per second of all uploads of a backup together, for example 20Mi. At least 64Ki.
	// If unset, there is no limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('65535'))",message="maxUploadRate is at least 64Ki"
	MaxUploadRate *resource.Quantity `json:"maxUploadRate,omitempty"`

	// objectLock locks each object of a backup when it is stored. The bucket must have object lock enabled, and the
	// credentials need s3:PutObjectRetention. If unset, the default retention of the bucket applies, if it has one.
	// +optional
	ObjectLock *BackupObjectLock `json:"objectLock,omitempty"`
}

// BackupObjectLock defines how, and for how long, objects are locked.
type BackupObjectLock struct {
	// mode defines who may remove a locked object: accounts with the permission s3:BypassGovernanceRetention
	// (Governance), or no account (Compliance).
	// +required
	// +kubebuilder:validation:Enum=Governance;Compliance
	Mode BackupObjectLockMode `json:"mode"`

	// retainFor is how long an object is locked after it is stored, from 1h to 87600h, for example 720h. In the mode
	// Compliance, nobody can shorten the time of stored objects later.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1h') && duration(self) <= duration('87600h')",message="retainFor is from 1h to 87600h"
	RetainFor metav1.Duration `json:"retainFor"`
}

// BackupObjectLockMode is who may remove a locked object.
type BackupObjectLockMode string

// BackupAddressingStyle is where requests name a bucket.
type BackupAddressingStyle string

// S3Credentials are keys of an account.
type S3Credentials struct {
	// accessKeyId names the key of a Secret with the ID of the access key.
	// +required
	AccessKeyID SecretKeyReference `json:"accessKeyId"`

	// secretAccessKey names the key of a Secret with the secret access key.
	// +required
	SecretAccessKey SecretKeyReference `json:"secretAccessKey"`

	// sessionToken names the key of a Secret with the session token of temporary credentials. If unset, requests have
	// none.
	// +optional
	SessionToken *SecretKeyReference `json:"sessionToken,omitempty"`
}

// SecretKeyReference names a key of a Secret in the same namespace.
type SecretKeyReference struct {
	// name is the name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// key is the key of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	Key string `json:"key"`
}

// BackupEncryption has the public keys to which backups are encrypted.
type BackupEncryption struct {
	// recipients are public keys of age (age1...). The private key of any of them decrypts a backup; keep the private
	// keys outside of the cluster. A change applies to new backups only.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=4096
	// +kubebuilder:validation:items:Pattern=`^age1[0-9a-z]+$`
	Recipients []string `json:"recipients"`
}

// BackupStoreStatus is the observed state of a BackupStore.
type BackupStoreStatus struct {
	// observedGeneration is the generation of the spec that was reconciled, -1 before the first.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions describe the state of the store.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
