package kcpoperator

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// certManager issues real certificates as cert-manager does: when a Secret is missing, or when its Certificate names another issuer than the
// one that has issued it. A CA that has another key does not issue anything again.
type certManager struct {
	client.Client
	namespace string
	refuses   string // a Certificate that it does not issue
}

// issueOne issues at most one certificate, and reports whether it did.
func (m certManager) issueOne(ctx context.Context) (bool, error) {
	list := &certmanagerv1.CertificateList{}
	if err := m.List(ctx, list, client.InNamespace(m.namespace)); err != nil {
		return false, err
	}
	for i := range list.Items {
		if list.Items[i].Name == m.refuses {
			continue
		}
		if issued, err := m.issue(ctx, &list.Items[i]); issued || err != nil {
			return issued, err
		}
	}
	return false, nil
}

func (m certManager) issue(ctx context.Context, certificate *certmanagerv1.Certificate) (bool, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: certificate.Spec.SecretName, Namespace: m.namespace}}
	err := m.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	exists := err == nil
	if !exists && !apierrors.IsNotFound(err) {
		return false, err
	}
	issuer := certificate.Spec.IssuerRef.Name
	if !exists || secret.Annotations[certmanagerv1.IssuerNameAnnotationKey] != issuer {
		data, err := m.sign(ctx, certificate)
		if err != nil || data == nil {
			return false, err
		}
		secret.Annotations = map[string]string{certmanagerv1.CertificateNameKey: certificate.Name, certmanagerv1.IssuerNameAnnotationKey: issuer}
		if template := certificate.Spec.SecretTemplate; template != nil {
			secret.Labels = template.Labels
		}
		secret.Data, secret.Type = data, corev1.SecretTypeTLS
		if exists {
			return true, m.Update(ctx, secret)
		}
		return true, m.Create(ctx, secret)
	}
	if conditions := certificate.Status.Conditions; len(conditions) > 0 && conditions[0].ObservedGeneration == certificate.Generation {
		return false, nil
	}
	certificate.Status.Conditions = []certmanagerv1.CertificateCondition{{
		Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionTrue, ObservedGeneration: certificate.Generation,
	}}
	return true, m.Status().Update(ctx, certificate)
}

// sign returns the content of a Secret, or nil while the issuer is not ready.
func (m certManager) sign(ctx context.Context, certificate *certmanagerv1.Certificate) (map[string][]byte, error) {
	issuer := &certmanagerv1.Issuer{}
	if err := m.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: certificate.Spec.IssuerRef.Name}, issuer); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	leaf := newTemplate(certificate, serial)
	parent, parentKey, chain := leaf, any(key), []byte(nil)
	if issuer.Spec.CA != nil {
		ca := &corev1.Secret{}
		if err := m.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: issuer.Spec.CA.SecretName}, ca); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		chain = ca.Data[corev1.TLSCertKey]
		if parent, err = parseCertificate(chain); err != nil {
			return nil, err
		}
		if parentKey, err = keyutil.ParsePrivateKeyPEM(ca.Data[corev1.TLSPrivateKeyKey]); err != nil {
			return nil, err
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, parent, key.Public(), parentKey)
	if err != nil {
		return nil, err
	}
	file, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	// The issuer's certificate follows, as in cert-manager unless the issuer is a root.
	encoded := slices.Concat(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), chain)
	return map[string][]byte{corev1.TLSCertKey: encoded, corev1.TLSPrivateKeyKey: file, "ca.crt": chain}, nil
}

func newTemplate(certificate *certmanagerv1.Certificate, serial *big.Int) *x509.Certificate {
	spec := certificate.Spec
	out := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: spec.CommonName}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: spec.DNSNames, IsCA: spec.IsCA, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if spec.Subject != nil {
		out.Subject.Organization = spec.Subject.Organizations
	}
	for _, address := range spec.IPAddresses {
		out.IPAddresses = append(out.IPAddresses, net.ParseIP(address))
	}
	if spec.IsCA {
		out.KeyUsage |= x509.KeyUsageCertSign
	}
	for usage, extended := range map[certmanagerv1.KeyUsage]x509.ExtKeyUsage{
		certmanagerv1.UsageClientAuth: x509.ExtKeyUsageClientAuth, certmanagerv1.UsageServerAuth: x509.ExtKeyUsageServerAuth,
	} {
		if slices.Contains(spec.Usages, usage) {
			out.ExtKeyUsage = append(out.ExtKeyUsage, extended)
		}
	}
	return out
}

func parseCertificate(file []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(file)
	if block == nil {
		return nil, fmt.Errorf("no certificate in %q", file)
	}
	return x509.ParseCertificate(block.Bytes)
}
