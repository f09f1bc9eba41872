package cluster

import (
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	certutil "k8s.io/client-go/util/cert"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"
)

// validity exceeds the lifetime of any checkout.
const validity = 10 * 365 * 24 * time.Hour

// leaf is one certificate: for a server if it has names or addresses, and always for a client (etcd's peers are both).
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

// ensurePKI creates missing authorities and certificates. It does not replace existing ones, so that the kubeconfigs and service account
// tokens of a restarted cluster remain valid.
func (l Layout) ensurePKI(now time.Time) error {
	if err := os.MkdirAll(l.path("pki"), 0o700); err != nil {
		return err
	}
	authorityCerts, authorityKeys := map[string]*x509.Certificate{}, map[string]crypto.Signer{}
	for _, name := range authorities {
		config := newCertConfig(certutil.Config{CommonName: "devcluster-" + name}, now)
		cert, key, err := l.ensureCertificate(name, func() (*x509.Certificate, crypto.Signer, error) { return pkiutil.NewCertificateAuthority(config) })
		if err != nil {
			return fmt.Errorf("certificate authority %s: %w", name, err)
		}
		authorityCerts[name], authorityKeys[name] = cert, key
	}
	for _, leaf := range leaves {
		config := newCertConfig(leaf.config(), now)
		if _, _, err := l.ensureCertificate(leaf.file, func() (*x509.Certificate, crypto.Signer, error) {
			return pkiutil.NewCertAndKey(authorityCerts[leaf.issuer], authorityKeys[leaf.issuer], config)
		}); err != nil {
			return fmt.Errorf("certificate %s: %w", leaf.file, err)
		}
	}
	return l.ensureServiceAccountKey()
}

func (l leaf) config() certutil.Config {
	config := certutil.Config{
		CommonName: l.user,
		AltNames:   certutil.AltNames{DNSNames: l.dns},
		Usages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if l.group != "" {
		config.Organization = []string{l.group}
	}
	for _, ip := range l.ips {
		config.AltNames.IPs = append(config.AltNames.IPs, net.ParseIP(ip))
	}
	if len(l.dns)+len(l.ips) > 0 {
		config.Usages = append(config.Usages, x509.ExtKeyUsageServerAuth)
	}
	return config
}

func newCertConfig(config certutil.Config, now time.Time) *pkiutil.CertConfig {
	config.NotBefore = now.Add(-time.Hour).UTC()
	return &pkiutil.CertConfig{Config: config, NotAfter: now.Add(validity).UTC(), EncryptionAlgorithm: kubeadmapi.EncryptionAlgorithmECDSAP256}
}

// ensureCertificate reads a certificate with its key, or creates and writes both.
func (l Layout) ensureCertificate(name string, create func() (*x509.Certificate, crypto.Signer, error)) (*x509.Certificate, crypto.Signer, error) {
	if pkiutil.CertOrKeyExist(l.path("pki"), name) {
		return pkiutil.TryLoadCertAndKeyFromDisk(l.path("pki"), name)
	}
	cert, key, err := create()
	if err != nil {
		return nil, nil, err
	}
	return cert, key, pkiutil.WriteCertAndKey(l.path("pki"), name, cert, key)
}

// ensureServiceAccountKey creates the key pair that signs and verifies service account tokens.
func (l Layout) ensureServiceAccountKey() error {
	const name = "service-accounts"
	if _, err := os.Stat(l.pki(name + ".key")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := pkiutil.NewPrivateKey(kubeadmapi.EncryptionAlgorithmECDSAP256)
	if err != nil {
		return err
	}
	if err := pkiutil.WritePublicKey(l.path("pki"), name, key.Public()); err != nil {
		return err
	}
	return pkiutil.WriteKey(l.path("pki"), name, key)
}
