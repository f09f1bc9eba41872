// Package servingcert makes the serving certificate of a server that was given none: a CA for this one certificate, whose
// key nobody keeps, and the certificate itself. Servers of a real installation are given theirs.
//
// Keys are of elliptic curves, where upstream's are RSA: a server proves its key in every handshake, which nobody has to
// queue for, and RSA costs fifty times as much there.
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
	// renewal is how long before its end a certificate is replaced when a server starts.
	renewal = 30 * 24 * time.Hour
	// backdated is how far clocks of clients may be behind, or how much the clock of the server may be set back.
	backdated = time.Hour
)

// Default does what MaybeDefaultWithSelfSignedCerts of the options does: nothing if they name a certificate or do not
// serve; else it uses the pair in the options' directory, which it creates, or replaces when it is about to expire. Without a
// directory the pair lives in memory. The first name is the certificate's own; it, the other names and the addresses are
// what clients may call the server.
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
	there, err := certutil.CanReadCertAndKey(certFile, keyFile)
	if err != nil || there && lasts(certFile, keyFile, time.Now()) {
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
	klog.InfoS("Created a self-signed serving certificate; clients are given it as the CA to trust", "file", certFile, "replaced", there)
	return nil
}

// lasts tells whether a pair is good for some time. One that cannot be understood is whoever made it's to mend.
func lasts(certFile, keyFile string, now time.Time) bool {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	return err != nil || pair.Leaf == nil || now.Before(pair.Leaf.NotAfter.Add(-renewal))
}

// Generate returns a certificate with its CA behind it, and its key, both as PEM. A name may be an address.
func Generate(name string, names []string, ips []net.IP, now time.Time) (cert, key []byte, err error) {
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
		NotBefore:    now.Add(-backdated), NotAfter: now.Add(validity),
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

// sign returns the certificate as PEM.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der}), err
}
