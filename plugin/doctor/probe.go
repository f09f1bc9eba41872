package doctor

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

const (
	// requestTimeout bounds each request, so that a server that hangs does not hold up the command.
	requestTimeout = 10 * time.Second
	// maxPage bounds a page of metrics.
	maxPage = 64 << 20
	// dateResolution is that of the header Date.
	dateResolution = time.Second
)

// probe asks a server whether it is ready, and for its clock, certificate, version and metrics. config has the URL of the server without a
// path. Without version and metrics, the probe asks for nothing that servers refuse to anonymous users.
type probe struct {
	name    string
	config  *rest.Config
	version string // path of the version, "" for none
	metrics bool
}

// run never fails: what it could not read is in the facts. It returns no server if the time for all reading ends: that says nothing about
// the server.
func (p probe) run(ctx context.Context) (*Server, []Unread) {
	server := &Server{Name: p.name, URL: p.config.Host}
	client, end, err := p.newClient()
	if err != nil {
		server.Unreachable = err.Error()
		return server, nil
	}
	defer end()
	err = p.askReadiness(ctx, client, server)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, []Unread{{What: p.name + ", which has not answered when --timeout ended"}}
	default:
		server.Unreachable, server.Certificate = err.Error(), presentedIn(err)
		server.untrusted = errors.As(err, &x509.UnknownAuthorityError{})
		return server, nil
	}
	if server.isRefusing() {
		return server, []Unread{{What: p.name + ": credentials refused"}}
	}
	var unread []Unread
	if p.version != "" {
		if err := p.get(ctx, client, p.version, func(body io.Reader) error {
			info := version.Info{}
			err := json.NewDecoder(io.LimitReader(body, maxPage)).Decode(&info)
			server.Version = info.GitVersion
			return err
		}); err != nil {
			unread = append(unread, Unread{What: "the version of " + p.name, Reason: err.Error()})
		}
	}
	if p.metrics {
		if err := p.get(ctx, client, "/metrics", func(body io.Reader) error {
			server.Metrics, err = readSamples(io.LimitReader(body, maxPage))
			return err
		}); err != nil {
			unread = append(unread, Unread{What: "the metrics of " + p.name, Reason: err.Error()})
		}
	}
	return server, unread
}

// newClient returns a client that shares no connection, and a function that closes its own: a new handshake shows the certificate that the
// server presents now.
func (p probe) newClient() (client *http.Client, end func(), err error) {
	config, err := p.config.TransportConfig()
	if err != nil {
		return nil, nil, err
	}
	tlsConfig, err := transport.TLSConfigFor(config)
	if err != nil {
		return nil, nil, err
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.TLSClientConfig = tlsConfig
	if config.Proxy != nil {
		base.Proxy = config.Proxy
	}
	wrapped, err := transport.HTTPWrappersForConfig(config, base)
	return &http.Client{Transport: wrapped, Timeout: requestTimeout, CheckRedirect: noRedirect}, base.CloseIdleConnections, err
}

// noRedirect makes a client return a redirect: following it would send the credentials to another server.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// newDynamic returns a client that follows no redirect, and whose requests have a deadline.
func newDynamic(config *rest.Config) (dynamic.Interface, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Timeout = -1, requestTimeout
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	client := *shared
	client.CheckRedirect = noRedirect
	out, err := dynamic.NewForConfigAndClient(config, &client)
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (p probe) askReadiness(ctx context.Context, client *http.Client, server *Server) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.config.Host+"/readyz?verbose", http.NoBody)
	if err != nil {
		return err
	}
	sent := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	trip := time.Since(sent)
	server.Reachable, server.Status, server.Ready = true, response.StatusCode, response.StatusCode == http.StatusOK
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		server.ClockOffset = date.Add(dateResolution / 2).Sub(sent.Add(trip / 2))
		server.Uncertainty = (trip + dateResolution) / 2
	}
	if response.TLS != nil && len(response.TLS.PeerCertificates) > 0 {
		server.Certificate = validityOf(response.TLS.PeerCertificates[0])
	}
	if !server.Ready {
		server.Failing = failingChecks(io.LimitReader(response.Body, maxPage))
	}
	return nil
}

// failingChecks returns the names of the checks in a verbose response that fail. Their reasons are in the log of the server only.
func failingChecks(body io.Reader) []string {
	var names []string
	for lines := bufio.NewScanner(body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "[-]"); ok {
			name, _, _ := strings.Cut(rest, " ")
			names = append(names, name)
		}
	}
	return names
}

func (p probe) get(ctx context.Context, client *http.Client, path string, read func(io.Reader) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.config.Host+path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the server returned %s", response.Status)
	}
	return read(response.Body)
}

// presentedIn returns the certificate that a client has refused, nil if the error has another reason.
func presentedIn(err error) *Certificate {
	var refused *tls.CertificateVerificationError
	if !errors.As(err, &refused) || len(refused.UnverifiedCertificates) == 0 {
		return nil
	}
	return validityOf(refused.UnverifiedCertificates[0])
}

func validityOf(certificate *x509.Certificate) *Certificate {
	return &Certificate{NotBefore: certificate.NotBefore, NotAfter: certificate.NotAfter}
}
