package issuers

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/flowcontrol"
)

// Bounds on what a server that a tenant chose can cost.
const (
	fetchTimeout   = 10 * time.Second // of a request, reading its answer included
	maxAnswer      = 1 << 20          // bytes of a body
	maxHeader      = 64 << 10         // bytes of the headers of an answer
	maxRedirects   = 3
	connectTimeout = 5 * time.Second
	// A token that nobody signed makes upstream fetch the keys again, and anybody can send one.
	requestsPerSecond, requestsAtOnce = 1, 10
)

// newClient returns a client for the server of one issuer, verified by the given PEM bundle or, without one, the roots of
// the system. It speaks https only, keeps no connection open, and reaches no link-local address, where machines find
// their metadata.
func newClient(bundle string) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if bundle != "" {
		roots, err := certutil.NewPoolFromBytes([]byte(bundle))
		if err != nil {
			return nil, fmt.Errorf("certificate authority: %w", err)
		}
		config.RootCAs = roots
	}
	dialer := &net.Dialer{Timeout: connectTimeout, Control: refuseLinkLocal}
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    connectTimeout,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHeader,
	}
	return &http.Client{Transport: bounded{transport, flowcontrol.NewTokenBucketPassiveRateLimiter(requestsPerSecond, requestsAtOnce)}, Timeout: fetchTimeout, CheckRedirect: checkRedirect}, nil
}

func checkRedirect(req *http.Request, via []*http.Request) error {
	if req.URL.Scheme != "https" || len(via) > maxRedirects {
		return errors.New("redirected too often, or to what is not https")
	}
	return nil
}

// refuseLinkLocal looks at the address that a name was resolved to, so that no name can hide it.
func refuseLinkLocal(_, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if ip := target.Addr().Unmap(); ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
		return errors.New("the address is not one that an issuer can have")
	}
	return nil
}

// bounded cuts answers off, which then fail to decode, asks no server too often, and speaks https only, wherever a
// document leads.
type bounded struct {
	next  http.RoundTripper
	limit flowcontrol.PassiveRateLimiter
}

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" {
		return nil, errors.New("issuers are asked by https only")
	}
	if !b.limit.TryAccept() {
		return nil, errors.New("the issuer was asked too often")
	}
	resp, err := b.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	return resp, nil
}
