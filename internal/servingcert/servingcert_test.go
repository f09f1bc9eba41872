package servingcert

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

func TestGenerate(t *testing.T) {
	pem, key, err := Generate("10.0.0.7", []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(pem, key)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := pair.PrivateKey.(*ecdsa.PrivateKey); !ok {
		t.Errorf("the key is a %T", pair.PrivateKey)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	for _, name := range []string{"localhost", "127.0.0.1", "10.0.0.7"} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
			t.Errorf("as %s: %v", name, err)
		}
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: "other.example.com", Roots: roots}); err == nil {
		t.Error("the certificate is valid for any name")
	}
}

func TestDefaultRenewsExpiringPair(t *testing.T) {
	directory := t.TempDir()
	start := func() []byte {
		s := newOptions(directory)
		if err := Default(s, "localhost", nil, nil); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(s.ServerCert.CertKey.CertFile)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	first := start()
	if string(start()) != string(first) {
		t.Error("a second start generated another certificate")
	}
	old, key, err := Generate("localhost", nil, nil, time.Now().Add(renewBefore/2-validity))
	if err != nil {
		t.Fatal(err)
	}
	if err := cert.WriteCert(filepath.Join(directory, "apiserver.crt"), old); err != nil {
		t.Fatal(err)
	}
	if err := keyutil.WriteKey(filepath.Join(directory, "apiserver.key"), key); err != nil {
		t.Fatal(err)
	}
	if string(start()) == string(old) {
		t.Error("an expiring certificate is kept")
	}
}

func TestDefaultKeepsConfiguredPair(t *testing.T) {
	s := newOptions(t.TempDir())
	s.ServerCert.CertKey = genericoptions.CertKey{CertFile: "given.crt", KeyFile: "given.key"}
	if err := Default(s, "localhost", nil, nil); err != nil || s.ServerCert.CertKey.CertFile != "given.crt" {
		t.Errorf("%v, %+v", err, s.ServerCert)
	}
}

func TestDefaultInMemory(t *testing.T) {
	s := newOptions("")
	if err := Default(s, "localhost", nil, nil); err != nil {
		t.Fatal(err)
	}
	if s.ServerCert.GeneratedCert == nil || s.ServerCert.CertKey.CertFile != "" {
		t.Errorf("%+v", s.ServerCert)
	}
}

func newOptions(directory string) *genericoptions.SecureServingOptions {
	s := genericoptions.NewSecureServingOptions()
	s.BindAddress, s.BindPort = net.IPv4(127, 0, 0, 1), 6443
	s.ServerCert.CertDirectory, s.ServerCert.PairName = directory, "apiserver"
	return s
}
