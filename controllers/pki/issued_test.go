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
	"strings"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// withCA returns RootShard root, of which a CA has a recorded state.
func withCA(ca desired.CA, phase operatorv1alpha1.CertificateAuthorityPhase, nextFingerprint string) *operatorv1alpha1.RootShard {
	root := newRootShard()
	root.Status.Certificates = &operatorv1alpha1.CertificatesStatus{CAs: []operatorv1alpha1.CertificateAuthorityStatus{{
		Name: operatorv1alpha1.RekeyableCA(ca), Phase: phase, Generation: 1, NextGeneration: 2, NextFingerprint: nextFingerprint,
	}}}
	return root
}

// TestPendingAuthority: nothing waits for the certificate of the next generation of a CA while no server trusts it.
func TestPendingAuthority(t *testing.T) {
	for _, ca := range desired.RekeyableCAs() {
		second := "root-" + string(ca) + "-2"
		objects := pki.RootShard(withCA(ca, operatorv1alpha1.CertificateAuthorityTrustBoth, ""), nil)
		if len(objects.Pending) != 1 || objects.Pending[0].Name != second || slices.Contains(objects.Secrets(), second) {
			t.Errorf("got %+v, with the Secrets %v", objects.Pending, objects.Secrets())
		}
		if !slices.ContainsFunc(objects.Issuers, func(issuer *certmanagerv1.Issuer) bool { return issuer.Name == second }) {
			t.Errorf("%s has no Issuer", second)
		}
	}
}

// signed are the certificates of an installation with each kind of server and a Kubeconfig that a CA has signed.
var signed = map[desired.CA][]string{
	desired.ClientCA: {
		"alpha-client", "alpha-external-logical-cluster-admin", "alpha-logical-cluster-admin", "kubeconfig-cert-admin", "root-client",
		"root-external-logical-cluster-admin", "root-front-kubeconfig", "root-kcp-operator", "root-logical-cluster-admin", "root-proxy-kubeconfig", "virtual-client",
	},
	desired.RequestHeaderCA: {"alpha-mounts-proxy", "root-front-requestheader", "root-proxy-requestheader"},
}

// issuers returns the issuers of the certificates of such an installation by name.
func issuers(root *operatorv1alpha1.RootShard) map[string]string {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: root.Namespace} }
	shard := desired.NewShard(&operatorv1alpha1.Shard{ObjectMeta: meta("alpha")}, root)
	virtual := &operatorv1alpha1.VirtualWorkspace{ObjectMeta: meta("virtual")}
	certificates := slices.Concat(
		pki.RootShard(root, nil).Certificates, pki.Shard(shard, nil).Certificates,
		pki.Proxy(desired.NewFrontProxy(&operatorv1alpha1.FrontProxy{ObjectMeta: meta("front")}, root), root).Certificates,
		pki.VirtualWorkspace(desired.NewVirtualWorkspace(virtual, shard), virtual, nil).Certificates,
		[]*certmanagerv1.Certificate{pki.Kubeconfig(&operatorv1alpha1.Kubeconfig{ObjectMeta: meta("admin")}, root)},
	)
	out := map[string]string{}
	for _, certificate := range certificates {
		out[certificate.Name] = certificate.Spec.IssuerRef.Name
	}
	return out
}

// TestRekeyedAuthorities: the certificates of the operator name the Issuer of the generation that signs, and the Issuer that users name signs
// with the same Secret.
func TestRekeyedAuthorities(t *testing.T) {
	for phase, suffix := range map[operatorv1alpha1.CertificateAuthorityPhase]string{
		operatorv1alpha1.CertificateAuthorityTrustBoth: "", operatorv1alpha1.CertificateAuthorityIssue: "-2", operatorv1alpha1.CertificateAuthorityRetire: "-2",
	} {
		for _, ca := range desired.RekeyableCAs() {
			t.Run(string(phase)+" of "+string(ca), func(t *testing.T) {
				root, first := withCA(ca, phase, "00"), "root-"+string(ca)
				signer := first + suffix
				var by []string
				for name, issuer := range issuers(root) {
					if issuer == signer {
						by = append(by, name)
					} else if strings.HasPrefix(issuer, first) {
						t.Errorf("%s is issued by %s", name, issuer)
					}
				}
				if slices.Sort(by); !slices.Equal(by, signed[ca]) {
					t.Errorf("%s issues %q, want %q", signer, by, signed[ca])
				}
				if got := desired.ParentRootShard(root).Issuer; ca == desired.ClientCA && got != signer {
					t.Errorf("those of caches are issued by %s, want %s", got, signer)
				}
				objects := pki.RootShard(root, nil)
				if key := findCertificate(t, objects, first+"-2").Spec.PrivateKey; key.RotationPolicy != certmanagerv1.RotationPolicyNever {
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
				if secrets[first] != signer || secrets[first+"-2"] != first+"-2" {
					t.Errorf("Issuers sign with %v", secrets)
				}
			})
		}
	}
}

// TestLongNames: the common names of all generations of a CA fit into X.509, and differ.
func TestLongNames(t *testing.T) {
	root := withCA(desired.RequestHeaderCA, operatorv1alpha1.CertificateAuthorityTrustBoth, "00")
	root.Name = strings.Repeat("r", 40) // the longest
	names := map[string]bool{}
	for _, name := range desired.ExistingCAs(root, desired.RequestHeaderCA) {
		common := findCertificate(t, pki.RootShard(root, nil), name).Spec.CommonName
		if len(common) > 64 {
			t.Errorf("%s has %d characters", common, len(common))
		}
		names[common] = true
	}
	if len(names) != 2 {
		t.Errorf("the common names are %v", names)
	}
}
