package shardclient

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
)

// TestPinnedServingCertificate: the certificate of a front proxy may come from a public authority, for public
// names, and the operator connects to the Service.
func TestPinnedServingCertificate(t *testing.T) {
	// Its certificate is self-signed, for example.com.
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	defer server.Close()
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	servingCert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	otherCert := newSelfSignedCertificate(t)
	secret := func(name string, certificate []byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kcp"}, Data: map[string][]byte{
			corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		}}
	}
	for name, tc := range map[string]struct {
		serving []byte // what the Secret of its certificate holds
		host    string
		want    string
	}{
		"at the name it is for":                     {servingCert, "127.0.0.1", ""},
		"at another name":                           {servingCert, "localhost", ""},
		"not with another certificate":              {otherCert, "127.0.0.1", "its certificate is signed by an unknown authority"},
		"not while the Secret holds no certificate": {[]byte("none"), "127.0.0.1", "Secret serving holds no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			clients := New(apply.Cluster{Client: memory.NewClient(t,
				secret("root-kcp-operator", servingCert), secret("root-server-ca", otherCert), secret("root-ca", otherCert), secret("serving", tc.serving),
			)})
			root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp"}}
			have := ""
			if err := clients.checkServerReadyz(t.Context(), root, "https://"+tc.host+":"+address.Port(), "serving"); err != nil {
				have = StableMessage(err)
			}
			if have != tc.want {
				t.Errorf("got %q, want %q", have, tc.want)
			}
		})
	}
}

// newSelfSignedCertificate is an unrelated certificate.
func newSelfSignedCertificate(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"example.com"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
