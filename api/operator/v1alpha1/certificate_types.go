package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Certificates is the source of a certificate authority. If no field is set, the operator creates a self-signed
// certificate authority.
type Certificates struct {
	// issuerRef names the cert-manager issuer that signs the root certificate authority. It must be able to sign CA
	// certificates. Ignored if caSecretRef is set.
	// +optional
	IssuerRef *IssuerReference `json:"issuerRef,omitempty"`

	// caSecretRef names a Secret in the same namespace with an existing CA: its certificate (tls.crt) and private key
	// (tls.key). It takes precedence over issuerRef.
	// +optional
	CASecretRef *corev1.LocalObjectReference `json:"caSecretRef,omitempty"`
}

// RootShardCertificates is the source of the certificate authorities of an installation.
type RootShardCertificates struct {
	Certificates `json:",inline"`

	// rekey replaces the keys of certificate authorities, and those with which shards sign tokens of service accounts,
	// while the installation serves requests. Entries cannot be removed, and their generation cannot decrease. It is
	// an addition of Atoll.
	// +optional
	// +listType=map
	// +listMapKey=ca
	// +kubebuilder:validation:MaxItems=8
	Rekey []CertificateRekey `json:"rekey,omitempty"`
}

// RekeyableCA is a certificate authority, or the keys of service account tokens, that can be re-keyed while the installation serves requests.
// +kubebuilder:validation:Enum=client-ca;requestheader-client-ca;service-account
type RekeyableCA string

// What can be re-keyed.
const (
	ClientCA        RekeyableCA = "client-ca"               // signs client certificates
	RequestHeaderCA RekeyableCA = "requestheader-client-ca" // signs those of proxies, which tell servers who a user is
	// ServiceAccountKeys are no certificate authority, but the keys with which shards sign the tokens of service accounts, one of each shard.
	ServiceAccountKeys RekeyableCA = "service-account"
)

// CertificateRekey is the desired key of a certificate authority.
// +kubebuilder:validation:XValidation:rule="!has(self.retireGeneration) || self.retireGeneration < self.generation",message="retireGeneration is to be lower than generation, which remains trusted"
type CertificateRekey struct {
	// ca is what is re-keyed: client-ca, which signs client certificates; requestheader-client-ca, which signs the
	// certificates with which proxies authenticate to servers; or service-account, the keys with which all shards sign
	// tokens of service accounts. Others cannot be re-keyed.
	// +required
	CA RekeyableCA `json:"ca"`

	// generation is the number of the desired key; the first key of an installation has the number 1. A number above
	// the one in status.certificates.cas starts a re-keying.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9999
	Generation int32 `json:"generation"`

	// retireGeneration is the last generation that servers need not trust any more, lower than generation. Set it
	// after clients that the operator does not manage, such as copies of kubeconfigs and holders of tokens, have
	// certificates and tokens of a later generation. Until then, servers trust the previous one.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9999
	RetireGeneration int32 `json:"retireGeneration,omitempty"`
}

// CertificatesStatus is the state of the certificate authorities of an installation.
type CertificatesStatus struct {
	// cas are the certificate authorities that can be re-keyed, and the keys of service account tokens.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	CAs []CertificateAuthorityStatus `json:"cas,omitempty"`
}

// CertificateAuthorityPhase is the step of a re-keying.
// +kubebuilder:validation:Enum=Stable;TrustBoth;Issue;Retire
type CertificateAuthorityPhase string

// Phases of a re-keying, in their order.
const (
	CertificateAuthorityStable    CertificateAuthorityPhase = "Stable"    // there is one generation
	CertificateAuthorityTrustBoth CertificateAuthorityPhase = "TrustBoth" // servers learn to trust the next one, too
	CertificateAuthorityIssue     CertificateAuthorityPhase = "Issue"     // certificates are issued by the next one
	CertificateAuthorityRetire    CertificateAuthorityPhase = "Retire"    // servers cease to trust the previous one
)

// CertificateAuthorityStatus is the state of one certificate authority.
type CertificateAuthorityStatus struct {
	// name is the name of the certificate authority, such as client-ca, or service-account.
	// +required
	Name RekeyableCA `json:"name"`

	// phase is Stable, or the step of a re-keying: TrustBoth, Issue or Retire.
	// +required
	Phase CertificateAuthorityPhase `json:"phase"`

	// generation is the number of the key. During a re-keying, it is the number of the previous key.
	// +required
	Generation int32 `json:"generation"`

	// nextGeneration is the number of the new key during a re-keying. Unset otherwise.
	// +optional
	NextGeneration int32 `json:"nextGeneration,omitempty"`

	// secretName is the name of the Secret with the certificate authority that signs certificates at present; of
	// service-account, that with the key with which the root shard signs.
	// +optional
	SecretName string `json:"secretName,omitempty"`

	// fingerprint is the SHA-256 fingerprint of the CA certificate of generation; of service-account, that of the key
	// of the root shard.
	// +optional
	Fingerprint string `json:"fingerprint,omitempty"`

	// nextFingerprint is the SHA-256 fingerprint of the CA certificate of nextGeneration; of service-account, that of
	// the key of the root shard, once all shards have theirs.
	// +optional
	NextFingerprint string `json:"nextFingerprint,omitempty"`

	// notAfter is the time at which the CA certificate that signs at present expires. Keys of service account tokens
	// do not expire.
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`

	// blockedBy describes what the next phase waits for, at most ten entries.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	BlockedBy []string `json:"blockedBy,omitempty"`

	// readySince is the time since which nothing blocks the next phase, which begins some minutes later.
	// +optional
	ReadySince *metav1.Time `json:"readySince,omitempty"`
}

// IssuerReference names a cert-manager issuer. The fields are those of cert-manager.
type IssuerReference struct {
	// name is the name of the issuer.
	// +required
	Name string `json:"name"`

	// kind is the kind of the issuer: Issuer, ClusterIssuer, or a kind of an external issuer. Defaults to Issuer.
	// +optional
	Kind string `json:"kind,omitempty"`

	// group is the API group of the kind. Defaults to cert-manager.io.
	// +optional
	Group string `json:"group,omitempty"`
}

// CertificateTemplates changes the certificates of a component, by their short name (server, client, root-ca, ...).
type CertificateTemplates map[string]CertificateTemplate

// CertificateTemplate changes one certificate that the operator creates. Common name and usages cannot be changed.
type CertificateTemplate struct {
	// metadata is added to the metadata of the Certificate object.
	// +optional
	Metadata *TemplateMetadata `json:"metadata,omitempty"`

	// spec changes fields of the Certificate. Fields that are unset keep the operator's values.
	// +optional
	Spec *CertificateSpecTemplate `json:"spec,omitempty"`
}

// CertificateSpecTemplate holds the configurable fields of a Certificate.
type CertificateSpecTemplate struct {
	// subject adds attributes to the subject of the certificate.
	// +optional
	Subject *CertificateSubject `json:"subject,omitempty"`

	// issuerRef names another issuer for this certificate. If the template has dnsNames, too, they and ipAddresses
	// replace the operator's names and addresses, which a public issuer would refuse to sign.
	// +optional
	IssuerRef *IssuerReference `json:"issuerRef,omitempty"`

	// dnsNames are added to the DNS names that the operator sets. With issuerRef, they replace them.
	// +optional
	DNSNames []string `json:"dnsNames,omitempty"`

	// ipAddresses are added to the IP addresses that the operator sets. With issuerRef and dnsNames, they replace
	// them.
	// +optional
	IPAddresses []string `json:"ipAddresses,omitempty"`

	// secretTemplate is added to the metadata of the Secret with the certificate.
	// +optional
	SecretTemplate *TemplateMetadata `json:"secretTemplate,omitempty"`

	// duration is how long the certificate is valid, for example 2160h. Defaults to 8760h, and to 87600h for
	// certificate authorities. cert-manager refuses less than 1h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	Duration *metav1.Duration `json:"duration,omitempty"`

	// renewBefore is how long before its expiry the certificate is renewed, for example 720h. It must be shorter than
	// duration. Defaults to 168h, and to 720h for certificate authorities.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	RenewBefore *metav1.Duration `json:"renewBefore,omitempty"`

	// privateKey configures the private key of the certificate.
	// +optional
	PrivateKey *CertificatePrivateKey `json:"privateKey,omitempty"`
}

// CertificateSubject adds attributes to the subject of a certificate. The operator merges lists with its own values.
type CertificateSubject struct {
	// organizations are values of the attribute O. In client certificates, they are the groups of the user.
	// +optional
	Organizations []string `json:"organizations,omitempty"`

	// countries are values of the attribute C.
	// +optional
	Countries []string `json:"countries,omitempty"`

	// organizationalUnits are values of the attribute OU.
	// +optional
	OrganizationalUnits []string `json:"organizationalUnits,omitempty"`

	// localities are values of the attribute L.
	// +optional
	Localities []string `json:"localities,omitempty"`

	// provinces are values of the attribute ST.
	// +optional
	Provinces []string `json:"provinces,omitempty"`

	// streetAddresses are values of the attribute STREET.
	// +optional
	StreetAddresses []string `json:"streetAddresses,omitempty"`

	// postalCodes are values of the attribute postalCode.
	// +optional
	PostalCodes []string `json:"postalCodes,omitempty"`

	// serialNumber is the value of the attribute serialNumber, which is not the serial number of the certificate.
	// +optional
	SerialNumber string `json:"serialNumber,omitempty"`
}

// CertificatePrivateKey configures the private key of a certificate.
type CertificatePrivateKey struct {
	// rotationPolicy defines whether a renewed certificate gets a new key (Always) or keeps its key (Never). If
	// unset, certificate authorities and the keys that sign service account tokens keep theirs, and cert-manager's
	// default applies to others.
	// +optional
	RotationPolicy PrivateKeyRotationPolicy `json:"rotationPolicy,omitempty"`

	// encoding is the encoding of the key in the Secret. Defaults to PKCS1.
	// +optional
	Encoding PrivateKeyEncoding `json:"encoding,omitempty"`

	// algorithm is the algorithm of the key. Defaults to RSA, and to ECDSA for the certificates of an etcd that the
	// operator runs.
	// +optional
	Algorithm PrivateKeyAlgorithm `json:"algorithm,omitempty"`

	// size is the size of the key in bits: 2048, 4096 or 8192 for RSA; 256, 384 or 521 for ECDSA. Defaults to 4096
	// for RSA; if algorithm differs from the operator's, to cert-manager's default.
	// +optional
	Size int `json:"size,omitempty"`
}

// PrivateKeyRotationPolicy defines whether a renewed certificate gets a new key.
// +kubebuilder:validation:Enum=Never;Always
type PrivateKeyRotationPolicy string

// PrivateKeyEncoding is the encoding of a private key.
// +kubebuilder:validation:Enum=PKCS1;PKCS8
type PrivateKeyEncoding string

// PrivateKeyAlgorithm is the algorithm of a private key.
// +kubebuilder:validation:Enum=RSA;ECDSA;Ed25519
type PrivateKeyAlgorithm string
