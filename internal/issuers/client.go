package issuers

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/atoll-dev/atoll/internal/dialguard"
)

// Limits of requests to servers that tenants configure.
const (
	fetchTimeout     = 10 * time.Second // of a request, including reading the response
	maxResponseBytes = 1 << 20          // bytes of a body
	maxHeaderBytes   = 64 << 10         // bytes of response headers
	maxRedirects     = 3
	connectTimeout   = 5 * time.Second
	// A token with an invalid signature makes upstream fetch the keys again, and every client can send such tokens.
	requestsPerSecond, requestBurst = 1, 10
)

// newClient returns a client for the server of one issuer, verified by the given PEM bundle or, without one, the system
// roots. It uses https only, keeps no idle connections, and refuses the addresses of package
// dialguard.
func newClient(bundle string) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if bundle != "" {
		roots, err := certutil.NewPoolFromBytes([]byte(bundle))
		if err != nil {
			return nil, fmt.Errorf("certificate authority: %w", err)
		}
		config.RootCAs = roots
	}
	dialer := &net.Dialer{Timeout: connectTimeout, Control: dialguard.Control}
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    connectTimeout,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	return &http.Client{Transport: limitedTransport{transport, flowcontrol.NewTokenBucketPassiveRateLimiter(requestsPerSecond, requestBurst)}, Timeout: fetchTimeout, CheckRedirect: checkRedirect}, nil
}

func checkRedirect(req *http.Request, via []*http.Request) error {
	if req.URL.Scheme != "https" || len(via) > maxRedirects {
		return errors.New("redirected too often, or to a URL that is not https")
	}
	return nil
}

// limitedTransport truncates responses, which then fail to decode, limits the request rate, and requires https for
// every URL of a document.
type limitedTransport struct {
	next  http.RoundTripper
	limit flowcontrol.PassiveRateLimiter
}

func (l limitedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" {
		return nil, errors.New("issuers are requested with https only")
	}
	if !l.limit.TryAccept() {
		return nil, errors.New("the issuer was requested too often")
	}
	resp, err := l.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxResponseBytes), resp.Body}
	return resp, nil
}
