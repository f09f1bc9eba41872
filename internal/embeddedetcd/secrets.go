package embeddedetcd

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The certificates are created at each start, for this process only, and are valid at any time: otherwise a clock that
// is corrected after the start would disconnect a server from its own etcd. The end is the value that RFC 5280 defines
// for certificates without expiration.
var notBefore, notAfter = time.Unix(0, 0), time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)

type secretFiles struct {
	caCert, peerCert, peerKey, clientCert, clientKey string
}

// writeSecrets creates a CA, a serving pair for localhost and a client pair below dir.
func writeSecrets(dir, curveName string) (*secretFiles, error) {
	curve, err := parseCurve(curveName)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	caKey, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		return nil, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: "etcd-ca"},
		NotBefore:    notBefore, NotAfter: notAfter,
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	files := &secretFiles{
		caCert:   filepath.Join(dir, "ca", "cert.pem"),
		peerCert: filepath.Join(dir, "peer", "cert.pem"), peerKey: filepath.Join(dir, "peer", "key.pem"),
		clientCert: filepath.Join(dir, "client", "cert.pem"), clientKey: filepath.Join(dir, "client", "key.pem"),
	}
	caDER, err := issue(ca, ca, caKey.Public(), caKey)
	if err != nil {
		return nil, err
	}
	if err := writePair(files.caCert, filepath.Join(dir, "ca", "key.pem"), caDER, caKey); err != nil {
		return nil, err
	}
	for i, leaf := range []struct {
		name, cert, key string
		usages          []x509.ExtKeyUsage
	}{
		{"etcd-peer", files.peerCert, files.peerKey, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}},
		{"etcd-client", files.clientCert, files.clientKey, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
	} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			return nil, err
		}
		der, err := issue(&x509.Certificate{
			SerialNumber: big.NewInt(now.UnixNano() + int64(i) + 1),
			Subject:      pkix.Name{CommonName: leaf.name},
			NotBefore:    notBefore, NotAfter: notAfter,
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: leaf.usages,
			DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		}, ca, key.Public(), caKey)
		if err != nil {
			return nil, err
		}
		if err := writePair(leaf.cert, leaf.key, der, key); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func parseCurve(name string) (elliptic.Curve, error) {
	switch name {
	case "P-224":
		return elliptic.P224(), nil
	case "P-256":
		return elliptic.P256(), nil
	case "", "P-384":
		return elliptic.P384(), nil
	case "P-521":
		return elliptic.P521(), nil
	}
	return nil, fmt.Errorf("--embedded-etcd-ecdsa-curve: got %q, want one of P-224, P-256, P-384, P-521", name)
}

func issue(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) ([]byte, error) {
	return x509.CreateCertificate(rand.Reader, template, parent, public, signer)
}

func writePair(certFile, keyFile string, der []byte, key *ecdsa.PrivateKey) error {
	if err := os.MkdirAll(filepath.Dir(certFile), 0o700); err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600)
}
