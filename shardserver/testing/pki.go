package testing

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/internal/testpki"
)

// validity is the validity of the test certificates.
const validity = time.Hour

// CA issues certificates for tests. Its files are removed at the end of the test.
type CA struct {
	// CertFile is the CA's certificate (PEM).
	CertFile string

	authority *testpki.Authority
}

// NewCA creates a certificate authority.
func NewCA(t testing.TB, name string) *CA {
	t.Helper()
	authority, err := testpki.New(t.TempDir(), name, validity)
	if err != nil {
		t.Fatal(err)
	}
	return &CA{CertFile: authority.CertFile, authority: authority}
}

// Issue creates a client and serving certificate for localhost and the loopback addresses, and returns its PEM files.
func (ca *CA) Issue(t testing.TB, commonName string, organizations ...string) (certFile, keyFile string) {
	t.Helper()
	pair, err := ca.authority.Issue(commonName, organizations...)
	if err != nil {
		t.Fatal(err)
	}
	return pair.CertFile, pair.KeyFile
}

// Client returns a copy of a client configuration whose only credential is a certificate of this CA.
func (ca *CA) Client(t testing.TB, config *rest.Config, commonName string, organizations ...string) *rest.Config {
	t.Helper()
	client := rest.AnonymousClientConfig(config)
	client.QPS, client.Burst = config.QPS, config.Burst
	client.CertFile, client.KeyFile = ca.Issue(t, commonName, organizations...)
	return client
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
