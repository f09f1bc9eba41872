package testing

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
)

// CA issues certificates for tests. Its files live as long as the test.
type CA struct {
	// CertFile is the CA's certificate (PEM).
	CertFile string

	directory string
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
}

// NewCA creates a certificate authority.
func NewCA(t testing.TB, name string) *CA {
	t.Helper()
	ca := &CA{directory: t.TempDir()}
	template := template(name, nil)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	ca.cert, ca.key = template, newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, template, ca.key.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	ca.CertFile = ca.write(t, "ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return ca
}

// Issue creates a certificate for both ends of a connection. It is valid for localhost and the loopback addresses,
// and returned as PEM files.
func (ca *CA) Issue(t testing.TB, commonName string, organizations ...string) (certFile, keyFile string) {
	t.Helper()
	template := template(commonName, organizations)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	template.DNSNames, template.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	name := commonName + "-" + template.SerialNumber.String() // clients remember certificates by their files' names
	return ca.write(t, name+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		ca.write(t, name+".key", encoded)
}

// Client returns a copy of a client configuration whose only credential is a certificate of this CA.
func (ca *CA) Client(t testing.TB, config *rest.Config, commonName string, organizations ...string) *rest.Config {
	t.Helper()
	client := rest.AnonymousClientConfig(config)
	client.QPS, client.Burst = config.QPS, config.Burst
	client.CertFile, client.KeyFile = ca.Issue(t, commonName, organizations...)
	return client
}

func (ca *CA) write(t testing.TB, name string, content []byte) string {
	t.Helper()
	file := filepath.Join(ca.directory, name)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func template(commonName string, organizations []string) *x509.Certificate {
	now := time.Now()
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62)) // fails only without an entropy source, when keys fail too
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName, Organization: organizations},
		NotBefore:    now.Add(-time.Minute),
		NotAfter:     now.Add(time.Hour),
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
