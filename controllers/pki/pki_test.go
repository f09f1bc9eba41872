package pki_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/internal/golden"
)

func TestRenderedCertificates(t *testing.T) {
	for name, files := range map[string]struct{ root, front, kubeconfig string }{
		"minimal": {"rootshard_minimal.yaml", "frontproxy.yaml", "kubeconfig.yaml"},
		"full":    {"full/rootshard.yaml", "full/frontproxy.yaml", "full/kubeconfig.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			root := golden.Sample[operatorv1alpha1.RootShard](t, files.root)
			front := golden.Sample[operatorv1alpha1.FrontProxy](t, files.front)
			objects := pki.RootShard(root, nil)
			golden.Check(t, name+"_issuers", objects.Issuers...)
			golden.Check(t, name+"_rootshard", objects.Certificates...)
			golden.Check(t, name+"_frontproxy", pki.Proxy(desired.NewFrontProxy(front, root), root).Certificates...)
			golden.Check(t, name+"_kubeconfig", pki.Kubeconfig(golden.Sample[operatorv1alpha1.Kubeconfig](t, files.kubeconfig), root))
		})
	}
}

func findCertificate(t *testing.T, objects pki.Objects, name string) *certmanagerv1.Certificate {
	t.Helper()
	for _, certificate := range objects.Certificates {
		if certificate.Name == name {
			return certificate
		}
	}
	t.Fatalf("no certificate %s", name)
	return nil
}

func newRootShard() *operatorv1alpha1.RootShard {
	return &operatorv1alpha1.RootShard{
		ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp"},
		Spec:       operatorv1alpha1.RootShardSpec{External: operatorv1alpha1.ExternalConfig{Hostname: "kcp.example.com", Port: 443}},
	}
}

func TestTemplates(t *testing.T) {
	issuer := &operatorv1alpha1.IssuerReference{Name: "public", Kind: "ClusterIssuer"}
	for name, tc := range map[string]struct {
		template operatorv1alpha1.CertificateSpecTemplate
		check    func(certmanagerv1.CertificateSpec) bool
	}{
		"names are added": {
			operatorv1alpha1.CertificateSpecTemplate{DNSNames: []string{"b.example.com", "kcp.example.com"}},
			func(s certmanagerv1.CertificateSpec) bool {
				return slices.Equal(s.DNSNames, []string{"b.example.com", "kcp.example.com", "root-kcp.kcp.svc.cluster.local"})
			},
		},
		"names of another issuer replace": {
			operatorv1alpha1.CertificateSpecTemplate{DNSNames: []string{"b.example.com"}, IssuerRef: issuer},
			func(s certmanagerv1.CertificateSpec) bool {
				return slices.Equal(s.DNSNames, []string{"b.example.com"}) && s.IssuerRef.Name == "public" && s.IssuerRef.Kind == "ClusterIssuer"
			},
		},
		"another issuer without names keeps them": {
			operatorv1alpha1.CertificateSpecTemplate{IssuerRef: issuer},
			func(s certmanagerv1.CertificateSpec) bool { return len(s.DNSNames) == 2 },
		},
		"another algorithm drops the size that went with the first": {
			operatorv1alpha1.CertificateSpecTemplate{PrivateKey: &operatorv1alpha1.CertificatePrivateKey{Algorithm: "Ed25519"}},
			func(s certmanagerv1.CertificateSpec) bool {
				return s.PrivateKey.Algorithm == "Ed25519" && s.PrivateKey.Size == 0
			},
		},
		"the operator's own labels stay": {
			operatorv1alpha1.CertificateSpecTemplate{SecretTemplate: &operatorv1alpha1.TemplateMetadata{
				Labels: map[string]string{operatorv1alpha1.LabelRootShard: "mine", "mine": "yes"},
			}},
			func(s certmanagerv1.CertificateSpec) bool {
				return s.SecretTemplate.Labels[operatorv1alpha1.LabelRootShard] == "root" && s.SecretTemplate.Labels["mine"] == "yes"
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := newRootShard()
			root.Spec.CertificateTemplates = operatorv1alpha1.CertificateTemplates{"server": {Spec: &tc.template}}
			if spec := findCertificate(t, pki.RootShard(root, nil), "root-server").Spec; !tc.check(spec) {
				t.Errorf("got %+v", spec)
			}
		})
	}
}

func TestProvidedCA(t *testing.T) {
	root := newRootShard()
	root.Spec.Certificates.CASecretRef = &corev1.LocalObjectReference{Name: "my-ca"}
	objects := pki.RootShard(root, nil)
	for _, certificate := range objects.Certificates {
		if certificate.Name == "root-ca" {
			t.Error("a root certificate is rendered beside the provided one")
		}
	}
	at := slices.IndexFunc(objects.Issuers, func(i *certmanagerv1.Issuer) bool { return i.Name == "root-ca" })
	if at < 0 || objects.Issuers[at].Spec.CA.SecretName != "my-ca" {
		t.Errorf("issuer root-ca does not read the user's Secret")
	}
}

func TestIPAddressSANs(t *testing.T) {
	root := newRootShard()
	root.Spec.External.Hostname = "192.0.2.7"
	spec := findCertificate(t, pki.RootShard(root, nil), "root-server").Spec
	if slices.Contains(spec.DNSNames, "192.0.2.7") || !slices.Contains(spec.IPAddresses, "192.0.2.7") {
		t.Errorf("names %v, addresses %v", spec.DNSNames, spec.IPAddresses)
	}
	// A public issuer with names in the template signs no address inside the cluster.
	root.Spec.CertificateTemplates = operatorv1alpha1.CertificateTemplates{"server": {Spec: &operatorv1alpha1.CertificateSpecTemplate{
		DNSNames: []string{"kcp.example.com"}, IssuerRef: &operatorv1alpha1.IssuerReference{Name: "public"},
	}}}
	spec = findCertificate(t, pki.RootShard(root, nil), "root-server").Spec
	if !slices.Equal(spec.DNSNames, []string{"kcp.example.com"}) || len(spec.IPAddresses) > 0 {
		t.Errorf("with an issuer of its own: names %v, addresses %v", spec.DNSNames, spec.IPAddresses)
	}
}

func TestUnnamedCASecretIsIgnored(t *testing.T) {
	root := newRootShard()
	root.Spec.Certificates.CASecretRef = &corev1.LocalObjectReference{}
	if findCertificate(t, pki.RootShard(root, nil), "root-ca").Spec.IssuerRef.Name != "root-selfsigned" {
		t.Error("the root CA does not sign itself")
	}
}

func TestNotReady(t *testing.T) {
	certificate := func(name string, generation int64, conditions ...certmanagerv1.CertificateCondition) *certmanagerv1.Certificate {
		return &certmanagerv1.Certificate{
			ObjectMeta: metav1.ObjectMeta{Name: name, Generation: generation}, Status: certmanagerv1.CertificateStatus{Conditions: conditions},
		}
	}
	ready := certmanagerv1.CertificateCondition{Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionTrue, ObservedGeneration: 1}
	failed := certmanagerv1.CertificateCondition{Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionFalse, Message: "no issuer."}
	have := pki.NotReady([]*certmanagerv1.Certificate{
		certificate("d", 2, ready), certificate("a", 1, ready), certificate("c", 1, failed), certificate("b", 1),
	})
	want := []string{"b: waiting for cert-manager", "c: no issuer", "d: being reissued"}
	if !slices.Equal(have, want) {
		t.Errorf("got %q, want %q", have, want)
	}
	if got := pki.SummarizeNotReady([]string{"a", "b", "c", "d", "e"}, 9); got != "5 of 9 certificates are not issued yet: a; b; c; and 2 more" {
		t.Errorf("got %q", got)
	}
}

func TestMergeBundle(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Date(2040, 1, 2, 3, 4, 5, 0, time.UTC)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	good := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})
	for name, tc := range map[string]struct {
		parts []pki.BundlePart
		want  int
		err   string
	}{
		"parts are joined in order":              {[]pki.BundlePart{{"a", good}, {"b", append([]byte("\n\n"), good...)}}, 2, ""},
		"a missing newline between does no harm": {[]pki.BundlePart{{"a", good[:len(good)-1]}, {"b", good}}, 2, ""},
		"an empty part is an error":              {[]pki.BundlePart{{"a", good}, {"b", nil}}, 0, "b holds no certificate"},
		"a private key is an error":              {[]pki.BundlePart{{"a", append(slices.Clone(good), private...)}}, 0, `a holds a PEM block of type "PRIVATE KEY"`},
		"text that is not PEM is an error":       {[]pki.BundlePart{{"a", []byte("hello")}}, 0, "a holds text that is not PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			merged, err := pki.MergeBundle(tc.parts...)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("got %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil || strings.Count(string(merged), "BEGIN CERTIFICATE") != tc.want {
				t.Errorf("got %v\n%s", err, merged)
			}
		})
	}
	if _, expiry, err := pki.ParseValidity(good); err != nil || !expiry.Equal(end) {
		t.Errorf("expiry is %v, %v", expiry, err)
	}
}
