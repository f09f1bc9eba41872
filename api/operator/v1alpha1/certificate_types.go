package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Certificates is the source of a certificate authority. If no field is set, the operator creates a self-signed
// certificate authority.
type Certificates struct {
	// issuerRef names the issuer that signs the root certificate authority. It must be able to sign CA certificates.
	// +optional
	IssuerRef *IssuerReference `json:"issuerRef,omitempty"`

	// caSecretRef names a Secret with an existing CA key pair (tls.crt, tls.key), as an alternative to issuerRef.
	// +optional
	CASecretRef *corev1.LocalObjectReference `json:"caSecretRef,omitempty"`
}

// RootShardCertificates is the source of the certificate authorities of an installation.
type RootShardCertificates struct {
	Certificates `json:",inline"`

	// rekey gives certificate authorities, and the shards that sign tokens of service accounts, new keys while the installation serves. An entry stays after its re-keying has ended, and its
	// generation only grows. It is an addition of Atoll.
	// +optional
	// +listType=map
	// +listMapKey=ca
	// +kubebuilder:validation:MaxItems=8
	Rekey []CertificateRekey `json:"rekey,omitempty"`
}

// RekeyableCA is a certificate authority, or the keys of service account tokens, that can be re-keyed while the installation serves.
// +kubebuilder:validation:Enum=client-ca;requestheader-client-ca;service-account
type RekeyableCA string

// What can be re-keyed.
const (
	ClientCA        RekeyableCA = "client-ca"               // signs client certificates
	RequestHeaderCA RekeyableCA = "requestheader-client-ca" // signs those of proxies, which tell servers who a user is
	// ServiceAccountKeys are no certificate authority, but the keys with which shards sign the tokens of service accounts, one of each shard.
	ServiceAccountKeys RekeyableCA = "service-account"
)

// CertificateRekey is the wanted key of a certificate authority.
// +kubebuilder:validation:XValidation:rule="!has(self.retireGeneration) || self.retireGeneration < self.generation",message="retireGeneration is to be lower than generation, which remains trusted"
type CertificateRekey struct {
	// ca is the certificate authority: client-ca, which signs client certificates, or requestheader-client-ca, which signs those with which
	// proxies tell servers who a user is. service-account are the keys of all shards, which sign the tokens of service accounts. Others cannot
	// be re-keyed.
	// +required
	CA RekeyableCA `json:"ca"`

	// generation is the number of the key: the first key of an installation is 1. A higher number than that of
	// status.certificates.cas begins a re-keying.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9999
	Generation int32 `json:"generation"`

	// retireGeneration is the last generation that need not be trusted any more. It confirms that clients of which the operator does
	// not know, such as copies of kubeconfigs and holders of tokens, have certificates and tokens of a later one.
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
	// name of the certificate authority, such as client-ca, or service-account.
	// +required
	Name RekeyableCA `json:"name"`

	// phase is Stable, or the step of a re-keying: TrustBoth, Issue, Retire.
	// +required
	Phase CertificateAuthorityPhase `json:"phase"`

	// generation is the number of the key; during a re-keying, that of the previous one.
	// +required
	Generation int32 `json:"generation"`

	// nextGeneration is the number of the new key during a re-keying.
	// +optional
	NextGeneration int32 `json:"nextGeneration,omitempty"`

	// secretName is the Secret with the certificate authority that issues; of service-account, the Secret with the key with which the root
	// shard signs.
	// +optional
	SecretName string `json:"secretName,omitempty"`

	// fingerprint is the SHA-256 of the certificate of generation; of service-account, that of the root shard's key.
	// +optional
	Fingerprint string `json:"fingerprint,omitempty"`

	// nextFingerprint is the SHA-256 of the certificate of nextGeneration; of service-account, that of the root shard's key, once all shards
	// have theirs.
	// +optional
	NextFingerprint string `json:"nextFingerprint,omitempty"`

	// notAfter is when the certificate of the issuing certificate authority expires. The keys of service account tokens do not expire.
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`

	// blockedBy says what the next phase waits for, at most ten entries.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	BlockedBy []string `json:"blockedBy,omitempty"`

	// readySince is since when no server and no certificate has been missing. The next phase begins some minutes later.
	// +optional
	ReadySince *metav1.Time `json:"readySince,omitempty"`
}

// IssuerReference names a cert-manager issuer. The fields are those of cert-manager.
type IssuerReference struct {
	// name of the issuer.
	// +required
	Name string `json:"name"`

	// kind of the issuer: Issuer, ClusterIssuer, or a kind of an external issuer. The default is Issuer.
	// +optional
	Kind string `json:"kind,omitempty"`

	// group of the issuer's kind. The default is cert-manager.io.
	// +optional
	Group string `json:"group,omitempty"`
}

// CertificateTemplates changes the certificates of a component, by their short name (server, client, root-ca, ...).
type CertificateTemplates map[string]CertificateTemplate

// CertificateTemplate changes one certificate that the operator creates. Common name and usages cannot be changed.
type CertificateTemplate struct {
	// metadata is added to the Certificate object.
	// +optional
	Metadata *TemplateMetadata `json:"metadata,omitempty"`

	// spec sets fields of the Certificate.
	// +optional
	Spec *CertificateSpecTemplate `json:"spec,omitempty"`
}

// CertificateSpecTemplate holds the configurable fields of a Certificate.
type CertificateSpecTemplate struct {
	// subject adds to the certificate's subject.
	// +optional
	Subject *CertificateSubject `json:"subject,omitempty"`

	// issuerRef selects another issuer for this certificate. The dnsNames of this template, if any, then replace the
	// operator's.
	// +optional
	IssuerRef *IssuerReference `json:"issuerRef,omitempty"`

	// dnsNames are added to the names the operator sets.
	// +optional
	DNSNames []string `json:"dnsNames,omitempty"`

	// ipAddresses are added to the addresses the operator sets.
	// +optional
	IPAddresses []string `json:"ipAddresses,omitempty"`

	// secretTemplate is added to the Secret that holds the certificate.
	// +optional
	SecretTemplate *TemplateMetadata `json:"secretTemplate,omitempty"`

	// duration for which the certificate is valid, for example 2160h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	Duration *metav1.Duration `json:"duration,omitempty"`

	// renewBefore is how long before its expiry the certificate is renewed, for example 720h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	RenewBefore *metav1.Duration `json:"renewBefore,omitempty"`

	// privateKey configures the key of the certificate.
	// +optional
	PrivateKey *CertificatePrivateKey `json:"privateKey,omitempty"`
}

// CertificateSubject adds to the subject of a certificate. Lists are united with what the operator sets.
type CertificateSubject struct {
	// organizations (O). On client certificates these are the user's groups.
	// +optional
	Organizations []string `json:"organizations,omitempty"`

	// countries (C).
	// +optional
	Countries []string `json:"countries,omitempty"`

	// organizationalUnits (OU).
	// +optional
	OrganizationalUnits []string `json:"organizationalUnits,omitempty"`

	// localities (L).
	// +optional
	Localities []string `json:"localities,omitempty"`

	// provinces (ST).
	// +optional
	Provinces []string `json:"provinces,omitempty"`

	// streetAddresses (STREET).
	// +optional
	StreetAddresses []string `json:"streetAddresses,omitempty"`

	// postalCodes.
	// +optional
	PostalCodes []string `json:"postalCodes,omitempty"`

	// serialNumber attribute of the subject.
	// +optional
	SerialNumber string `json:"serialNumber,omitempty"`
}

// CertificatePrivateKey configures the key of a certificate.
type CertificatePrivateKey struct {
	// rotationPolicy defines whether a renewed certificate gets a new key (Always) or keeps its key (Never).
	// +optional
	RotationPolicy PrivateKeyRotationPolicy `json:"rotationPolicy,omitempty"`

	// encoding of the key in the Secret.
	// +optional
	Encoding PrivateKeyEncoding `json:"encoding,omitempty"`

	// algorithm of the key.
	// +optional
	Algorithm PrivateKeyAlgorithm `json:"algorithm,omitempty"`

	// size of the key in bits, as the algorithm allows: 2048, 4096 or 8192 for RSA; 256, 384 or 521 for ECDSA.
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
