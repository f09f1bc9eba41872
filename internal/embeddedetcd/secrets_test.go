package embeddedetcd

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"
	"time"
)

func TestCertificateValidity(t *testing.T) {
	files, err := writeSecrets(t.TempDir(), "P-256")
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(files.caCert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		t.Fatal("the file of the authority has no certificate")
	}
	for _, pair := range [][2]string{{files.peerCert, files.peerKey}, {files.clientCert, files.clientKey}} {
		loaded, err := tls.LoadX509KeyPair(pair[0], pair[1])
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []time.Time{time.Unix(1, 0), time.Now().Add(-time.Hour), time.Now().AddDate(100, 0, 0)} {
			_, err := loaded.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
			if err != nil {
				t.Errorf("%s at %s: %v", pair[0], at, err)
			}
		}
	}
}
