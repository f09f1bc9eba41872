// Package webhookclient configures the clients of tenants' webhooks, for admission and conversion. A tenant chooses the
// address, so clients have no credentials of the shard, follow no redirects, return only successful responses, and bound
// the size and the depth of responses.
package webhookclient

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/internal/dialguard"
	"github.com/atoll-dev/atoll/internal/nesting"
)

const (
	// maxResponseBytes bounds the response of a webhook, after decompression. An admission response contains at most a
	// patch of an object, and an object has at most a few MiB.
	maxResponseBytes = 8 << 20
	// callTimeout bounds a call of a webhook whose configuration has no shorter timeout.
	callTimeout = 30 * time.Second
	dialTimeout = 10 * time.Second
)

// AnonymousResolver resolves every webhook to a client without credentials. Upstream's resolver uses a kubeconfig, the
// service account of the pod or the loopback token for some host names, which a tenant could choose.
type AnonymousResolver struct{}

// WrapResolver replaces upstream's resolver.
func WrapResolver(webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
	return AnonymousResolver{}
}

// ClientConfigFor implements webhook.AuthenticationInfoResolver.
func (AnonymousResolver) ClientConfigFor(string) (*rest.Config, error) {
	return &rest.Config{
		UserAgent: "kube-apiserver-admission", // as upstream
		Timeout:   callTimeout,
		Dial:      (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: dialguard.Control}).DialContext,
		WrapTransport: func(next http.RoundTripper) http.RoundTripper {
			return guardedTransport{next, nesting.Default().Request}
		},
	}, nil
}

// ClientConfigForService implements webhook.AuthenticationInfoResolver. A workspace has no services.
func (AnonymousResolver) ClientConfigForService(name, namespace string, _ int) (*rest.Config, error) {
	return nil, fmt.Errorf("service %q in namespace %q cannot be resolved: a workspace has no services, use clientConfig.url", name, namespace)
}

// guardedTransport rejects redirects, drops the bodies of failed responses, which could disclose to a tenant what else the
// shard can reach, and bounds the size and the depth of other responses.
type guardedTransport struct {
	next http.RoundTripper
	// maxLevels bounds how deep the objects in a response nest.
	maxLevels int
}

// RoundTrip implements http.RoundTripper.
func (g guardedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := g.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	switch code := response.StatusCode; {
	case code >= 300 && code < 400:
		_ = response.Body.Close()
		return nil, fmt.Errorf("the webhook redirects (status %d), which is not followed", code)
	case code < 200 || code >= 300:
		// Errors contain the body and are returned to the tenant. The address may be that of a server that only the
		// shard can reach.
		_ = response.Body.Close()
		response.Body, response.ContentLength = http.NoBody, 0
	default:
		response.Body = &checkedBody{ReadCloser: &limitedBody{response.Body, maxResponseBytes}, maxLevels: g.maxLevels}
	}
	return response, nil
}

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (g guardedTransport) WrappedRoundTripper() http.RoundTripper { return g.next }

var errResponseTooLarge = errors.New("the response of the webhook is too large")

// limitedBody is a body that fails after a number of bytes.
type limitedBody struct {
	io.ReadCloser
	remaining int64
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.remaining <= 0 {
		// A body of exactly the allowed size ends here.
		if n, err := b.ReadCloser.Read(make([]byte, 1)); n == 0 {
			return 0, err
		}
		return 0, errResponseTooLarge
	}
	if int64(len(p)) > b.remaining {
		p = p[:b.remaining]
	}
	n, err := b.ReadCloser.Read(p)
	b.remaining -= int64(n)
	return n, err
}
