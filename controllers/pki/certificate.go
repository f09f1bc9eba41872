package pki

import (
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	caDuration      = 87600 * time.Hour
	caRenewBefore   = 720 * time.Hour
	leafDuration    = 8760 * time.Hour
	leafRenewBefore = 168 * time.Hour
)

// maxCommonName is the limit of X.509.
const maxCommonName = 64

// Owner is the owner of certificates: their namespace, owner references and labels.
type Owner struct {
	Namespace    string
	References   []metav1.OwnerReference
	Labels       map[string]string // of Certificates and Issuers
	SecretLabels map[string]string // labels of their Secrets
}

// Key usages of leaf certificates, by purpose.
var (
	servingUsages     = []certmanagerv1.KeyUsage{certmanagerv1.UsageServerAuth, certmanagerv1.UsageKeyEncipherment, certmanagerv1.UsageDigitalSignature}
	serverOnlyUsages  = []certmanagerv1.KeyUsage{certmanagerv1.UsageServerAuth}
	clientUsages      = []certmanagerv1.KeyUsage{certmanagerv1.UsageClientAuth}
	signingUsages     = []certmanagerv1.KeyUsage{certmanagerv1.UsageKeyEncipherment, certmanagerv1.UsageDigitalSignature}
	servingPeerUsages = append([]certmanagerv1.KeyUsage{certmanagerv1.UsageClientAuth}, servingUsages...)
)

// leaf is one certificate that is no CA.
type leaf struct {
	name          string
	issuer        string
	commonName    string
	organizations []string
	usages        []certmanagerv1.KeyUsage
	dnsNames      []string // and IP addresses
	keepKey       bool     // renewals keep the private key
	ecdsa         bool
}

func (o Owner) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: o.Namespace, Labels: o.Labels, OwnerReferences: o.References}
}

func (o Owner) newLeaf(l leaf) *certmanagerv1.Certificate {
	names, addresses := splitNames(l.dnsNames)
	out := o.newCertificate(l.name, localIssuerReference(l.issuer), leafDuration, leafRenewBefore)
	out.Spec.CommonName = l.commonName
	out.Spec.Usages = l.usages
	out.Spec.DNSNames, out.Spec.IPAddresses = names, addresses
	if len(l.organizations) > 0 {
		out.Spec.Subject = &certmanagerv1.X509Subject{Organizations: l.organizations}
	}
	if l.keepKey {
		out.Spec.PrivateKey.RotationPolicy = certmanagerv1.RotationPolicyNever
	}
	if l.ecdsa {
		out.Spec.PrivateKey.Algorithm, out.Spec.PrivateKey.Size = certmanagerv1.ECDSAKeyAlgorithm, 256
	}
	return out
}

// newAuthority returns a CA with an issuer of the same name. Renewals keep its key, so that the certificates that it has signed, and
// every bundle that contains it, remain valid.
func (o Owner) newAuthority(name string, signedBy cmmeta.IssuerReference) (*certmanagerv1.Certificate, *certmanagerv1.Issuer) {
	out := o.newCertificate(name, signedBy, caDuration, caRenewBefore)
	out.Spec.IsCA = true
	out.Spec.CommonName = name[max(0, len(name)-maxCommonName):] // the end has the number of the generation
	out.Spec.PrivateKey.RotationPolicy = certmanagerv1.RotationPolicyNever
	return out, o.newCAIssuer(name, name)
}

func (o Owner) newCAIssuer(name, secret string) *certmanagerv1.Issuer {
	return o.newIssuer(name, certmanagerv1.IssuerConfig{CA: &certmanagerv1.CAIssuer{SecretName: secret}})
}

func (o Owner) newIssuer(name string, config certmanagerv1.IssuerConfig) *certmanagerv1.Issuer {
	return &certmanagerv1.Issuer{
		TypeMeta:   metav1.TypeMeta{APIVersion: certmanagerv1.SchemeGroupVersion.String(), Kind: certmanagerv1.IssuerKind},
		ObjectMeta: o.meta(name),
		Spec:       certmanagerv1.IssuerSpec{IssuerConfig: config},
	}
}

func (o Owner) newCertificate(name string, issuer cmmeta.IssuerReference, duration, renewBefore time.Duration) *certmanagerv1.Certificate {
	return &certmanagerv1.Certificate{
		TypeMeta:   metav1.TypeMeta{APIVersion: certmanagerv1.SchemeGroupVersion.String(), Kind: certmanagerv1.CertificateKind},
		ObjectMeta: o.meta(name),
		Spec: certmanagerv1.CertificateSpec{
			SecretName:     name,
			SecretTemplate: &certmanagerv1.CertificateSecretTemplate{Labels: o.SecretLabels},
			IssuerRef:      issuer,
			Duration:       &metav1.Duration{Duration: duration},
			RenewBefore:    &metav1.Duration{Duration: renewBefore},
			PrivateKey:     &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.RSAKeyAlgorithm, Size: 4096},
		},
	}
}
