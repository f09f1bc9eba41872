// Package testpki issues certificates for installations on one machine, for development and tests: small keys, valid
// for the loopback interface, stored as files. The operator uses cert-manager instead.
package testpki

import (
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
	"strings"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// clockSkew is the default age of issued certificates, which tolerates servers with slow clocks.
const clockSkew = time.Hour

// Authority is a certificate authority whose files are in a directory.
type Authority struct {
	// CertFile is its own certificate (PEM).
	CertFile string

	directory string
	valid     time.Duration
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
}

// New creates an authority in an existing directory. The certificates it issues expire with it.
func New(directory, name string, valid time.Duration) (*Authority, error) {
	now := time.Now()
	cert, err := newCertificate(name, nil, now.Add(-clockSkew), now.Add(valid))
	if err != nil {
		return nil, err
	}
	cert.IsCA, cert.BasicConstraintsValid, cert.KeyUsage = true, true, x509.KeyUsageCertSign
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	a := &Authority{CertFile: filepath.Join(directory, name+"-ca.crt"), directory: directory, valid: valid, cert: cert, key: key}
	return a, a.sign(cert, key.Public().(*ecdsa.PublicKey), a.CertFile)
}

// Pair is a certificate and its key (PEM files).
type Pair struct{ CertFile, KeyFile string }

// Issue creates a client and serving certificate, valid for localhost and the loopback addresses. Every call writes new
// files, because clients cache certificates by file name.
func (a *Authority) Issue(commonName string, organizations ...string) (Pair, error) {
	return a.issue(clockSkew, a.valid, nil, commonName, organizations)
}

// IssueNow is Issue for a certificate that is valid from now on, like those of cert-manager.
func (a *Authority) IssueNow(commonName string, organizations ...string) (Pair, error) {
	return a.issue(0, a.valid, nil, commonName, organizations)
}

// IssueFor is Issue with another validity.
func (a *Authority) IssueFor(valid time.Duration, commonName string, organizations ...string) (Pair, error) {
	return a.issue(clockSkew, valid, nil, commonName, organizations)
}

// IssueAt is Issue for a server with an additional address.
func (a *Authority) IssueAt(address net.IP, commonName string, organizations ...string) (Pair, error) {
	return a.issue(clockSkew, a.valid, address, commonName, organizations)
}

func (a *Authority) issue(since, valid time.Duration, address net.IP, commonName string, organizations []string) (Pair, error) {
	now := time.Now()
	cert, err := newCertificate(commonName, organizations, now.Add(-since), now.Add(valid))
	if err != nil {
		return Pair{}, err
	}
	cert.KeyUsage = x509.KeyUsageDigitalSignature
	cert.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	cert.DNSNames, cert.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if address != nil {
		cert.IPAddresses = append(cert.IPAddresses, address)
	}
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	base := filepath.Join(a.directory, strings.ReplaceAll(commonName, ":", "-")+"-"+cert.SerialNumber.String())
	pair := Pair{CertFile: base + ".crt", KeyFile: base + ".key"}
	if err := writeKey(key, pair.KeyFile); err != nil {
		return Pair{}, err
	}
	return pair, a.sign(cert, key.Public().(*ecdsa.PublicKey), pair.CertFile)
}

func (a *Authority) sign(cert *x509.Certificate, key *ecdsa.PublicKey, file string) error {
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key, a.key)
	if err != nil {
		return fmt.Errorf("signing the certificate of %s: %w", cert.Subject.CommonName, err)
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
}

// WriteSigningKey writes a key for service account tokens, because generating the shard's default of 4096 bits takes
// seconds, and the public key with the suffix ".pub".
func WriteSigningKey(file string) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		return err
	}
	return writeKey(key, file)
}

func newCertificate(name string, organizations []string, begin, end time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: organizations},
		NotBefore:    begin,
		NotAfter:     end,
	}, nil
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func writeKey(key *ecdsa.PrivateKey, file string) error {
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	return os.WriteFile(file, encoded, 0o600)
}
