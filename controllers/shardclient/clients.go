// Package shardclient is the client of the operator for the installations that it runs: the health of their servers, the registry of
// shards, and the logical clusters of a shard. It caches no connection and no state, because requests are rare, and certificates change.
package shardclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// callTimeout bounds every request to an installation: a request that hangs must not block a worker.
const callTimeout = 10 * time.Second

// Clients connects to the installations of a cluster.
type Clients struct {
	cluster apply.Cluster
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
}

// New returns clients whose credentials are in Secrets of the cluster.
func New(cluster apply.Cluster) *Clients {
	return &Clients{cluster: cluster, dial: (&net.Dialer{}).DialContext}
}

// Connect returns a client of a server of an installation, which authenticates as the operator. url has no path. The
// caller closes the idle connections of the client.
func (c *Clients) Connect(ctx context.Context, root *operatorv1alpha1.RootShard, url string) (*rest.Config, *http.Client, error) {
	return c.connectAs(ctx, root, pki.OperatorCertificate(root), url)
}

// connectAs authenticates with the certificate in a Secret.
func (c *Clients) connectAs(ctx context.Context, root *operatorv1alpha1.RootShard, name, url string) (*rest.Config, *http.Client, error) {
	const condition = operatorv1alpha1.ConditionCertificatesReady
	secret, err := apply.Get[corev1.Secret](ctx, c.cluster, root.Namespace, name)
	if err != nil {
		return nil, nil, err
	}
	if secret == nil {
		return nil, nil, Errorf("waiting for certificate %s", name)
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	cas, err := c.cluster.ReadBundle(ctx, condition, root.Namespace, desired.Bundle{
		CA:   desired.CASecret(root, desired.ServerCA),
		Refs: []*corev1.LocalObjectReference{{Name: desired.CASecret(root, desired.RootCA)}, root.Spec.CABundleSecretRef},
	})
	if err != nil {
		return nil, nil, err
	}
	return &rest.Config{Host: url, UserAgent: apply.FieldManager}, c.newHTTPClient(cas, pair), nil
}

// connectPinned returns a client of a server whose certificate may be from any issuer of the user, for any name: the client trusts the
// certificate in the Secret serving itself. The client authenticates with the certificate in another Secret.
func (c *Clients) connectPinned(ctx context.Context, root *operatorv1alpha1.RootShard, name, url, serving string) (*rest.Config, *http.Client, error) {
	secret, err := apply.Get[corev1.Secret](ctx, c.cluster, root.Namespace, serving)
	if err != nil {
		return nil, nil, err
	}
	if secret == nil {
		return nil, nil, Errorf("waiting for certificate %s", serving)
	}
	block, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
	if block == nil {
		return nil, nil, Errorf("Secret %s holds no certificate", serving)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, Errorf("Secret %s holds no certificate", serving)
	}
	config, httpClient, err := c.connectAs(ctx, root, name, url)
	if err != nil {
		return nil, nil, err
	}
	tlsConfig := httpClient.Transport.(*http.Transport).TLSClientConfig
	tlsConfig.RootCAs.AddCert(certificate)
	if certificate.VerifyHostname(desired.URLHost(url)) != nil && len(certificate.DNSNames) > 0 {
		tlsConfig.ServerName = certificate.DNSNames[0]
	}
	return config, httpClient, nil
}

// privilegedCertificate is the client certificate of the internal proxy. Only its group may send requests to all logical clusters of a
// shard at once; neither the operator nor a shard is in it.
func privilegedCertificate(root *operatorv1alpha1.RootShard) string {
	return desired.NewInternalProxy(root).Certificate("kubeconfig")
}

// connectShard returns a client of a shard, at its Service. It authenticates with the certificate in the Secret name.
func (c *Clients) connectShard(ctx context.Context, shard desired.Shard, name string) (*rest.Config, *http.Client, error) {
	return c.connectPinned(ctx, shard.Root(), name, shard.ServiceURL(), shard.Certificate("server"))
}

// newHTTPClient returns a client for a few requests: a shared client would retain every certificate that ever existed.
func (c *Clients) newHTTPClient(cas []byte, certificates ...tls.Certificate) *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cas)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = c.dial
	transport.Proxy = nil // an egress proxy cannot resolve in-cluster names
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: certificates}
	return &http.Client{Transport: transport, Timeout: callTimeout}
}

// withProxy calls do with a client of one logical cluster, as the operator, through the internal proxy.
func (c *Clients) withProxy(ctx context.Context, root *operatorv1alpha1.RootShard, cluster logicalcluster.Path, do func(dynamic.Interface) error) error {
	config, httpClient, err := c.Connect(ctx, root, desired.InternalProxyURL(root))
	if err != nil {
		return err
	}
	return withClient(config, httpClient, cluster, do)
}

// withRoot calls do with a client of the logical cluster root, as the operator, on the root shard.
func (c *Clients) withRoot(ctx context.Context, root *operatorv1alpha1.RootShard, do func(dynamic.Interface) error) error {
	config, httpClient, err := c.connectShard(ctx, desired.NewRootShard(root), pki.OperatorCertificate(root))
	if err != nil {
		return err
	}
	return withClient(config, httpClient, logicalcluster.Root.Path(), do)
}

// withAdmin calls do with a client of the admin workspace, as the operator, on the root shard.
func (c *Clients) withAdmin(ctx context.Context, root *operatorv1alpha1.RootShard, do func(dynamic.Interface) error) error {
	config, httpClient, err := c.connectShard(ctx, desired.NewRootShard(root), pki.OperatorCertificate(root))
	if err != nil {
		return err
	}
	config.Host += "/services/admin"
	return withServer(config, httpClient, do)
}

// withShard calls do with a client of one logical cluster of a shard, or of all of them at once.
func (c *Clients) withShard(ctx context.Context, shard desired.Shard, cluster logicalcluster.Path, do func(dynamic.Interface) error) error {
	config, httpClient, err := c.connectShard(ctx, shard, privilegedCertificate(shard.Root()))
	if err != nil {
		return err
	}
	return withClient(config, httpClient, cluster, do)
}

// withClient calls do with a client of one logical cluster, and closes its connections.
func withClient(config *rest.Config, httpClient *http.Client, cluster logicalcluster.Path, do func(dynamic.Interface) error) error {
	config.Host += cluster.URLPath()
	return withServer(config, httpClient, do)
}

// withServer calls do with a client of the address of a configuration, and closes its connections.
func withServer(config *rest.Config, httpClient *http.Client, do func(dynamic.Interface) error) error {
	defer httpClient.CloseIdleConnections()
	client, err := dynamic.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return fmt.Errorf("client for %s: %w", config.Host, err)
	}
	return do(client)
}
