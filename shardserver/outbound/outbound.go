// Package outbound is how a shard calls the webhooks of tenants: of admission and of conversion. A tenant chooses the
// address, so what is called gets no credentials of the shard, cannot send it elsewhere, cannot show its answers to
// anybody unless they are reviews, and cannot answer without end.
package outbound

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

const (
	// maxAnswer bounds what is read of a webhook's answer, in bytes after decompression. An admission response carries
	// at most a patch of an object, and an object has at most a few MiB.
	maxAnswer = 8 << 20
	// callTimeout bounds a call of a webhook whose configuration gives no shorter time.
	callTimeout = 30 * time.Second
	dialTimeout = 10 * time.Second
)

// Anonymous is how the shard appears before webhooks: without any credentials. Upstream's own resolver would take a
// kubeconfig, the service account of the pod or the loopback token for some host names, which a tenant could name.
type Anonymous struct{}

// Wrap replaces upstream's resolver.
func Wrap(webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver { return Anonymous{} }

// ClientConfigFor implements webhook.AuthenticationInfoResolver.
func (Anonymous) ClientConfigFor(string) (*rest.Config, error) {
	return &rest.Config{
		UserAgent:     "kube-apiserver-admission", // what webhooks know upstream by
		Timeout:       callTimeout,
		Dial:          (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: refuseLinkLocal}).DialContext,
		WrapTransport: func(next http.RoundTripper) http.RoundTripper { return guard{next} },
	}, nil
}

// ClientConfigForService implements webhook.AuthenticationInfoResolver. A workspace has no services.
func (Anonymous) ClientConfigForService(name, namespace string, _ int) (*rest.Config, error) {
	return nil, fmt.Errorf("service %q in namespace %q cannot be resolved: a workspace has no services, use clientConfig.url", name, namespace)
}

// refuseLinkLocal looks at the address that a name was resolved to, so that no name can hide it. Clouds keep the secrets
// of their machines at such addresses.
func refuseLinkLocal(_, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if ip := target.Addr().Unmap(); ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
		return errors.New("the address is not one that a webhook can have")
	}
	return nil
}

// guard keeps a webhook from sending the shard elsewhere, from showing its owner what else the shard can reach, and
// from answering without end.
type guard struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (g guard) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := g.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	switch code := response.StatusCode; {
	case code >= 300 && code < 400:
		_ = response.Body.Close()
		return nil, fmt.Errorf("the webhook redirects (status %d), which is not followed", code)
	case code < 200 || code >= 300:
		// What is not an answer to a review must not appear in the error, which the tenant sees: the address may be
		// that of something else that only the shard can reach.
		_ = response.Body.Close()
		response.Body, response.ContentLength = http.NoBody, 0
	default:
		response.Body = &bounded{response.Body, maxAnswer}
	}
	return response, nil
}

// WrappedRoundTripper lets client-go find the transport below.
func (g guard) WrappedRoundTripper() http.RoundTripper { return g.next }

var errTooLong = errors.New("the answer of the webhook is too long")

// bounded is a body that fails after so many bytes.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		// A body of exactly the allowed length ends here.
		if n, err := b.ReadCloser.Read(make([]byte, 1)); n == 0 {
			return 0, err
		}
		return 0, errTooLong
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	return n, err
}
