package pki_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"slices"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
)

// TestIsIssuedBy: of two authorities with the same name, the one whose key has signed is the issuer.
func TestIsIssuedBy(t *testing.T) {
	authority := func() (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}
		return template, key, createCertificate(t, template, template, key, key)
	}
	parent, key, file := authority()
	_, _, other := authority()
	leaf := createCertificate(t, &x509.Certificate{SerialNumber: big.NewInt(2)}, parent, key, key)
	for name, tc := range map[string]struct {
		file, authority []byte
		want            bool
	}{
		"its own":           {leaf, file, true},
		"a chain":           {slices.Concat(leaf, file), file, true},
		"one of that name":  {leaf, other, false},
		"not a certificate": {[]byte("x"), file, false},
		"no authority":      {leaf, nil, false},
		"not an authority":  {leaf, leaf, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := pki.IsIssuedBy(tc.file, tc.authority); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
	if got := pki.FirstCertificate(slices.Concat(leaf, file)); !bytes.Equal(got, leaf) {
		t.Errorf("the first certificate is\n%s", got)
	}
}

func createCertificate(t *testing.T, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestPendingAuthority: nothing waits for the certificate of the next generation of the client CA while no server trusts it.
func TestPendingAuthority(t *testing.T) {
	root := newRootShard()
	root.Status.Certificates = &operatorv1alpha1.CertificatesStatus{CAs: []operatorv1alpha1.CertificateAuthorityStatus{{
		Name: operatorv1alpha1.ClientCA, Phase: operatorv1alpha1.CertificateAuthorityTrustBoth, Generation: 1, NextGeneration: 2,
	}}}
	objects := pki.RootShard(root, nil)
	if len(objects.Pending) != 1 || objects.Pending[0].Name != "root-client-ca-2" || slices.Contains(objects.Secrets(), "root-client-ca-2") {
		t.Errorf("got %+v, with the Secrets %v", objects.Pending, objects.Secrets())
	}
	if !slices.ContainsFunc(objects.Issuers, func(issuer *certmanagerv1.Issuer) bool { return issuer.Name == "root-client-ca-2" }) {
		t.Error("it has no Issuer")
	}
}

// TestRekeyedAuthorities: certificates of the operator name the Issuer of the generation that signs, and the Issuer that users name signs with
// the same Secret.
func TestRekeyedAuthorities(t *testing.T) {
	for phase, tc := range map[operatorv1alpha1.CertificateAuthorityPhase]struct{ signer, users string }{
		operatorv1alpha1.CertificateAuthorityTrustBoth: {"root-client-ca", "root-client-ca"},
		operatorv1alpha1.CertificateAuthorityIssue:     {"root-client-ca-2", "root-client-ca-2"},
		operatorv1alpha1.CertificateAuthorityRetire:    {"root-client-ca-2", "root-client-ca-2"},
	} {
		t.Run(string(phase), func(t *testing.T) {
			root := newRootShard()
			root.Status.Certificates = &operatorv1alpha1.CertificatesStatus{CAs: []operatorv1alpha1.CertificateAuthorityStatus{{
				Name: operatorv1alpha1.ClientCA, Phase: phase, Generation: 1, NextGeneration: 2, NextFingerprint: "00",
			}}}
			objects := pki.RootShard(root, nil)
			if got := findCertificate(t, objects, "root-kcp-operator").Spec.IssuerRef.Name; got != tc.signer {
				t.Errorf("the operator's certificate is issued by %s, want %s", got, tc.signer)
			}
			if got := desired.ParentRootShard(root).Issuer; got != tc.signer {
				t.Errorf("those of caches are issued by %s, want %s", got, tc.signer)
			}
			if key := findCertificate(t, objects, "root-client-ca-2").Spec.PrivateKey; key.RotationPolicy != certmanagerv1.RotationPolicyNever {
				t.Errorf("renewals of the new authority have the policy %s for its key", key.RotationPolicy)
			}
			secrets := map[string]string{}
			for _, issuer := range objects.Issuers {
				if issuer.Spec.CA == nil {
					continue
				}
				if _, twice := secrets[issuer.Name]; twice {
					t.Errorf("there are two Issuers %s", issuer.Name)
				}
				secrets[issuer.Name] = issuer.Spec.CA.SecretName
			}
			if secrets["root-client-ca"] != tc.users || secrets["root-client-ca-2"] != "root-client-ca-2" {
				t.Errorf("Issuers sign with %v", secrets)
			}
		})
	}
}
