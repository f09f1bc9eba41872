package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"time"
)

// validity exceeds the lifetime of any checkout.
const validity = 10 * 365 * 24 * time.Hour

// leaf is one certificate: a server where it has names or addresses, a client always (etcd's peers are both).
type leaf struct {
	file, issuer string
	user, group  string
	dns          []string
	ips          []string
}

var authorities = []string{"ca", "front-proxy-ca"}

var leaves = []leaf{
	{file: "etcd", issuer: "ca", user: "etcd", ips: []string{"127.0.0.1"}},
	{file: "apiserver", issuer: "ca", user: "kube-apiserver",
		dns: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		ips: []string{nodeIP, kubernetesIP, "127.0.0.1"}},
	{file: "apiserver-etcd-client", issuer: "ca", user: "kube-apiserver-etcd-client"},
	{file: "apiserver-kubelet-client", issuer: "ca", user: "kube-apiserver-kubelet-client"},
	{file: "front-proxy-client", issuer: "front-proxy-ca", user: "front-proxy-client"},
	{file: "kubelet", issuer: "ca", user: "system:node:" + NodeName, group: "system:nodes", dns: []string{NodeName}, ips: []string{nodeIP}},
	{file: "admin", issuer: "ca", user: "kubernetes-admin", group: "system:masters"},
	{file: "kube-controller-manager", issuer: "ca", user: "system:kube-controller-manager"},
	{file: "kube-scheduler", issuer: "ca", user: "system:kube-scheduler"},
	{file: "kube-proxy", issuer: "ca", user: "system:kube-proxy"},
	{file: "certmanager", issuer: "ca", user: "devcluster:certmanager", group: "system:masters"},
	{file: "hostpath", issuer: "ca", user: "devcluster:hostpath", group: "system:masters"},
}

// kubeconfigUsers are the leaves that connect to the API server with a kubeconfig.
var kubeconfigUsers = []string{"admin", "kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy", "certmanager", "hostpath"}

// ensurePKI creates missing authorities and certificates. Existing ones stay, so that a restarted cluster keeps its
// kubeconfigs and service account tokens.
func (l Layout) ensurePKI(now time.Time) error {
	if err := os.MkdirAll(l.path("pki"), 0o700); err != nil {
		return err
	}
	type pair struct {
		cert *x509.Certificate
		key  *ecdsa.PrivateKey
	}
	issuers := map[string]pair{}
	for _, name := range authorities {
		cert, key, err := l.loadCertificate(name)
		if errors.Is(err, fs.ErrNotExist) {
			cert, key, err = l.issueCertificate(name, &x509.Certificate{
				Subject:               pkix.Name{CommonName: "devcluster-" + name},
				IsCA:                  true,
				BasicConstraintsValid: true,
				KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
			}, nil, nil, now)
		}
		if err != nil {
			return fmt.Errorf("certificate authority %s: %w", name, err)
		}
		issuers[name] = pair{cert, key}
	}
	for _, leaf := range leaves {
		if _, _, err := l.loadCertificate(leaf.file); err == nil {
			continue
		}
		issuer := issuers[leaf.issuer]
		if _, _, err := l.issueCertificate(leaf.file, leaf.template(), issuer.cert, issuer.key, now); err != nil {
			return fmt.Errorf("certificate %s: %w", leaf.file, err)
		}
	}
	return l.ensureServiceAccountKey()
}

func (c leaf) template() *x509.Certificate {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: c.user},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		DNSNames:    c.dns,
	}
	if c.group != "" {
		template.Subject.Organization = []string{c.group}
	}
	for _, ip := range c.ips {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	if len(c.dns)+len(c.ips) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	return template
}

// issueCertificate creates a key and a certificate signed by the issuer, or self-signed without one, and writes both.
func (l Layout) issueCertificate(name string, template, issuer *x509.Certificate, issuerKey *ecdsa.PrivateKey, now time.Time) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if issuer == nil {
		issuer, issuerKey = template, key
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, nil, err
	}
	template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(validity)
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), issuerKey)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	if err := l.writeKey(name, key); err != nil {
		return nil, nil, err
	}
	return cert, key, os.WriteFile(l.pki(name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

func (l Layout) writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(l.pki(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

func (l Layout) loadCertificate(name string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	var ders [2][]byte
	for i, suffix := range []string{".crt", ".key"} {
		content, err := os.ReadFile(l.pki(name + suffix))
		if err != nil {
			return nil, nil, err
		}
		block, _ := pem.Decode(content)
		if block == nil {
			return nil, nil, fmt.Errorf("%s is not PEM", l.pki(name+suffix))
		}
		ders[i] = block.Bytes
	}
	cert, err := x509.ParseCertificate(ders[0])
	if err != nil {
		return nil, nil, err
	}
	key, err := x509.ParseECPrivateKey(ders[1])
	return cert, key, err
}

// ensureServiceAccountKey creates the key pair that signs and verifies service account tokens.
func (l Layout) ensureServiceAccountKey() error {
	if _, err := os.Stat(l.pki("service-accounts.key")); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := os.WriteFile(l.pki("service-accounts.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644); err != nil {
		return err
	}
	return l.writeKey("service-accounts", key)
}
