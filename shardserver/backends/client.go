package backends

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/atoll-dev/atoll/internal/dialguard"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/tenancy/mount"
)

// Files are the files of the connection to backends.
type Files struct {
	// CA signs the certificates of backends. It is read once.
	CA string
	// ClientCert and ClientKey are what the shard shows to them. They are read for every connection, so that they can be renewed.
	ClientCert, ClientKey string
}

// Client sends requests to backends.
type Client struct {
	transport *http.Transport
}

// New returns a client. It has no state per backend but a bounded number of idle connections.
func New(files Files) (*Client, error) {
	bundle, err := os.ReadFile(files.CA)
	if err != nil {
		return nil, fmt.Errorf("reading the CA of backends: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("reading the CA of backends: %s contains no certificate", files.CA)
	}
	if _, err := tls.LoadX509KeyPair(files.ClientCert, files.ClientKey); err != nil {
		return nil, fmt.Errorf("reading the client certificate for backends: %w", err)
	}
	return &Client{transport: &http.Transport{
		DialContext: (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Control: dialguard.Control}).DialContext,
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			RootCAs:    pool,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				pair, err := tls.LoadX509KeyPair(files.ClientCert, files.ClientKey)
				return &pair, err
			},
		},
		// Without ForceAttemptHTTP2 there is no HTTP/2, whose connections cannot be upgraded.
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  time.Minute,
		MaxIdleConns:           100,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        30 * time.Second,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

const (
	// discoveryUser asks backends for their discovery. It has no permission anywhere.
	discoveryUser     = "system:kcp:subresource-discovery"
	discoveryTimeout  = 5 * time.Second
	maxDiscoveryBytes = 1 << 20
	userAgent         = "atoll-shard"
)

// Discover returns the resources of a version of an API that the virtual workspace at an address serves over all logical clusters.
func (c *Client) Discover(ctx context.Context, address string, version schema.GroupVersion) ([]metav1.APIResource, error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	target, err := Target(address, logicalcluster.Wildcard.String(), version, "")
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header = newHeader(http.Header{"Accept": {"application/json"}}, false,
		&user.DefaultInfo{Name: discoveryUser, Groups: []string{user.AllAuthenticated}}, 1)
	res, err := c.transport.RoundTrip(req) // which follows no redirects
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the backend answers with status %d", res.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxDiscoveryBytes+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxDiscoveryBytes {
		return nil, errors.New("the discovery of the backend is too large")
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("decoding the discovery of the backend: %w", err)
	}
	return list.APIResources, nil
}

// Target returns the URL of a path below a version of an API in a logical cluster, at the address of a virtual workspace. The path is
// empty, or segments without a leading slash that must be free of dot segments.
func Target(address, cluster string, version schema.GroupVersion, path string) (*url.URL, error) {
	below := "/clusters/" + cluster + "/apis/" + version.Group + "/" + version.Version
	if path != "" {
		below += "/" + path
	}
	return mount.Target(address, below)
}
