package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BackupStore is a bucket of an S3 server for backups of installations in its namespace, and the public keys that backups are encrypted
// to. Whoever may create one together with a Backup can read the Secrets of these installations.
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
	// endpointURL is the URL of the S3 server, without the bucket. With http, who listens on the network learns sizes and times; the
	// content is encrypted anyway.
	// +required
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@]+/?$`
	EndpointURL string `json:"endpointURL"`

	// bucket must exist.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9.-]+[a-z0-9]$`
	Bucket string `json:"bucket"`

	// prefix is put before the keys of all objects, which continue with the namespace and the name of the RootShard.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$`
	// +kubebuilder:validation:XValidation:rule="!self.split('/').exists(part, part == '.' || part == '..')",message="prefix has no parts . and .."
	Prefix string `json:"prefix,omitempty"`

	// region of the bucket. By default, it is us-east-1, which stores without regions expect.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Region string `json:"region,omitempty"`

	// addressingStyle is where requests name the bucket: in the path, or in the host. By default, it is Path.
	// +optional
	// +kubebuilder:validation:Enum=Path;VirtualHosted
	AddressingStyle BackupAddressingStyle `json:"addressingStyle,omitempty"`

	// s3Credentials are the credentials for the bucket. They need s3:ListBucket, s3:GetObject and s3:PutObject.
	// +required
	S3Credentials S3Credentials `json:"s3Credentials"`

	// endpointCA names the key of a Secret with certificates in PEM that are trusted instead of public ones.
	// +optional
	EndpointCA *SecretKeyReference `json:"endpointCA,omitempty"`

	// encryption is to whom backups are encrypted.
	// +required
	Encryption BackupEncryption `json:"encryption"`

	// maxUploadRate limits the bytes per second of all uploads of a backup together, for example 20Mi. By default, there is no limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('65535'))",message="maxUploadRate is at least 64Ki"
	MaxUploadRate *resource.Quantity `json:"maxUploadRate,omitempty"`

	// objectLock locks each object of a backup in the bucket when it is stored. The bucket must have object lock, and the credentials need
	// s3:PutObjectRetention. By default, the bucket's own rule applies.
	// +optional
	ObjectLock *BackupObjectLock `json:"objectLock,omitempty"`
}

// BackupObjectLock is how, and how long, objects are locked.
type BackupObjectLock struct {
	// mode is Governance, where accounts with the right s3:BypassGovernanceRetention may remove an object, or Compliance, where nobody may.
	// +required
	// +kubebuilder:validation:Enum=Governance;Compliance
	Mode BackupObjectLockMode `json:"mode"`

	// retainFor is how long an object is locked after it was stored, for example 720h: at least 1h, and at most 87600h. Nobody can shorten
	// it later in the mode Compliance.
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

	// sessionToken names the key of a Secret with the token of temporary credentials.
	// +optional
	SessionToken *SecretKeyReference `json:"sessionToken,omitempty"`
}

// SecretKeyReference names a key of a Secret in the same namespace.
type SecretKeyReference struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// key of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	Key string `json:"key"`
}

// BackupEncryption is to whom backups are encrypted.
type BackupEncryption struct {
	// recipients are public keys of age (age1...). Each of their private keys opens a backup; keep these outside of the cluster.
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

	// conditions are the states of the store.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
