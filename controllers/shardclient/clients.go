// Package shardclient is the client of the operator for the installations that it runs: the health of their servers,
// the registry of shards, and what is on a shard. It keeps no connection and no state: requests are rare, and
// certificates change.
package shardclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// callTimeout bounds every request to an installation: one that hangs must not block a worker.
const callTimeout = 10 * time.Second

// Clients connects to the installations of a cluster.
type Clients struct{ cluster apply.Cluster }

// New returns clients whose credentials are in Secrets of the cluster.
func New(cluster apply.Cluster) *Clients { return &Clients{cluster: cluster} }

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
	return &rest.Config{Host: url, UserAgent: apply.FieldManager}, newHTTPClient(cas, pair), nil
}

// connectPinned returns a client of a server whose certificate may be from any issuer of the user, for any name: the
// certificate in the Secret serving is trusted itself. The client authenticates as the operator.
func (c *Clients) connectPinned(ctx context.Context, root *operatorv1alpha1.RootShard, url, secretName string) (*rest.Config, *http.Client, error) {
	secret, err := apply.Get[corev1.Secret](ctx, c.cluster, root.Namespace, secretName)
	if err != nil {
		return nil, nil, err
	}
	if secret == nil {
		return nil, nil, Errorf("waiting for certificate %s", secretName)
	}
	block, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
	if block == nil {
		return nil, nil, Errorf("Secret %s holds no certificate", secretName)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, Errorf("Secret %s holds no certificate", secretName)
	}
	config, httpClient, err := c.Connect(ctx, root, url)
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

// newHTTPClient returns a client for a few requests: a shared one would keep every certificate that ever existed.
func newHTTPClient(cas []byte, certificates ...tls.Certificate) *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cas)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil // an egress proxy cannot resolve in-cluster names
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: certificates}
	return &http.Client{Transport: transport, Timeout: callTimeout}
}

// withCluster calls do with a client of one logical cluster of a server, as the operator.
func (c *Clients) withCluster(ctx context.Context, root *operatorv1alpha1.RootShard, url string, cluster logicalcluster.Path, do func(dynamic.Interface) error) error {
	return c.withClusterAs(ctx, root, pki.OperatorCertificate(root), url, cluster, do)
}

func (c *Clients) withClusterAs(ctx context.Context, root *operatorv1alpha1.RootShard, certificate, url string, cluster logicalcluster.Path, do func(dynamic.Interface) error) error {
	config, httpClient, err := c.connectAs(ctx, root, certificate, url)
	if err != nil {
		return err
	}
	return withClient(config, httpClient, cluster, do)
}

// withClient calls do with a client of one logical cluster, and closes its connections.
func withClient(config *rest.Config, httpClient *http.Client, cluster logicalcluster.Path, do func(dynamic.Interface) error) error {
	defer httpClient.CloseIdleConnections()
	config.Host += cluster.URLPath()
	client, err := dynamic.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return fmt.Errorf("client for %s: %w", config.Host, err)
	}
	return do(client)
}

// StableMessage returns a message for conditions, which is the same for each attempt: without ports and request
// numbers.
func StableMessage(err error) string {
	var unknownAuthority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var stable *stableError
	var statusErr *status.Error
	switch apiStatus := apierrors.APIStatus(nil); {
	case errors.As(err, &stable):
		return stable.Error()
	case errors.As(err, &statusErr):
		return statusErr.Error()
	case errors.As(err, &apiStatus):
		return apiStatus.Status().Message
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer within " + callTimeout.String()
	case errors.As(err, &unknownAuthority):
		return "its certificate is signed by an unknown authority"
	case errors.As(err, &hostname):
		return "its certificate is for another name"
	}
	return "no connection"
}

// stableError is an error whose text is the same for each attempt; cause may have more.
type stableError struct {
	message string
	cause   error
}

func (t *stableError) Error() string { return t.message }

func (t *stableError) Unwrap() error { return t.cause }

// Errorf returns an error whose text is the same for each attempt.
func Errorf(format string, args ...any) error {
	return &stableError{message: fmt.Sprintf(format, args...)}
}

// describeError wraps err with a text that is the same for each attempt. What it omits is logged.
func describeError(ctx context.Context, err error, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	ctrl.LoggerFrom(ctx).Info("request to the installation failed", "attempt", message, "error", err.Error())
	return &stableError{message: message + ": " + StableMessage(err), cause: err}
}
