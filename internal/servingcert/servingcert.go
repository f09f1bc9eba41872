// Package servingcert creates the serving certificate of a server that is configured without one: a CA for this one
// certificate, whose key is discarded, and the certificate itself. Production servers are configured with certificates. It also
// creates the certificate that each server presents to its own client.
//
// Keys are ECDSA, where upstream's are RSA: a server signs every TLS handshake, and RSA signatures are much slower.
package servingcert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
)

const (
	validity = 365 * 24 * time.Hour
	// renewBefore is how long before its end a certificate is replaced when a server starts.
	renewBefore = 30 * 24 * time.Hour
	// clockSkew is the clock skew of clients, and of the server itself, that a new certificate tolerates.
	clockSkew = time.Hour
)

// Default replaces MaybeDefaultWithSelfSignedCerts of the options: it does nothing if they name a certificate or do not
// serve; otherwise it uses the pair in the options' directory, which it creates, or replaces before it expires. Without
// a directory the pair is kept in memory. The first name is the subject; it, the other names and the addresses are the
// subject alternative names.
func Default(s *genericoptions.SecureServingOptions, name string, names []string, ips []net.IP) error {
	pair := &s.ServerCert
	if (s.BindPort == 0 && s.Listener == nil) || pair.CertKey.CertFile != "" || pair.CertKey.KeyFile != "" {
		return nil
	}
	if s.BindAddress.IsUnspecified() {
		names = append(names, "localhost")
	} else {
		ips = append(ips, s.BindAddress)
	}
	if pair.CertDirectory == "" {
		cert, key, err := Generate(name, names, ips, time.Now())
		if err != nil {
			return err
		}
		pair.GeneratedCert, err = dynamiccertificates.NewStaticCertKeyContent("self-signed serving certificate", cert, key)
		return err
	}
	if pair.PairName == "" {
		return fmt.Errorf("the serving certificate in %q needs a name", pair.CertDirectory)
	}
	certFile, keyFile := filepath.Join(pair.CertDirectory, pair.PairName+".crt"), filepath.Join(pair.CertDirectory, pair.PairName+".key")
	pair.CertKey.CertFile, pair.CertKey.KeyFile = certFile, keyFile
	exists, err := certutil.CanReadCertAndKey(certFile, keyFile)
	if err != nil || exists && isStillValid(certFile, keyFile, time.Now()) {
		return err
	}
	cert, key, err := Generate(name, names, ips, time.Now())
	if err != nil {
		return err
	}
	if err := certutil.WriteCert(certFile, cert); err != nil {
		return err
	}
	if err := keyutil.WriteKey(keyFile, key); err != nil {
		return err
	}
	klog.InfoS("Created a self-signed serving certificate; clients are given it as the CA to trust", "file", certFile, "replaced", exists)
	return nil
}

// isStillValid reports whether a pair does not expire soon. An invalid pair was not created here and is not replaced.
func isStillValid(certFile, keyFile string, now time.Time) bool {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	return err != nil || pair.Leaf == nil || now.Before(pair.Leaf.NotAfter.Add(-renewBefore))
}

// Generate returns a certificate followed by its CA, and its key, both as PEM. A name may be an IP address.
func Generate(name string, names []string, ips []net.IP, now time.Time) (cert, key []byte, err error) {
	return generate(name, names, ips, now, validity)
}

func generate(name string, names []string, ips []net.IP, now time.Time, validity time.Duration) (cert, key []byte, err error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: fmt.Sprintf("%s-ca@%d", name, now.Unix())},
		NotBefore:    now.Add(-clockSkew), NotAfter: now.Add(validity),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano() + 1),
		Subject:      pkix.Name{CommonName: fmt.Sprintf("%s@%d", name, now.Unix())},
		NotBefore:    ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: names, IPAddresses: ips,
	}
	if ip := net.ParseIP(name); ip != nil {
		leaf.IPAddresses = append(leaf.IPAddresses, ip)
	} else {
		leaf.DNSNames = append(leaf.DNSNames, name)
	}
	caDER, err := sign(ca, ca, caKey.Public(), caKey)
	if err != nil {
		return nil, nil, err
	}
	leafDER, err := sign(leaf, ca, leafKey.Public(), caKey)
	if err != nil {
		return nil, nil, err
	}
	key, err = keyutil.MarshalPrivateKeyToPEM(leafKey)
	return append(leafDER, caDER...), key, err
}

// sign returns the signed certificate as PEM.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der}), err
}
