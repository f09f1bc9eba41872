// Package backend forwards requests to shards and other servers: connections, their certificates, the outbound request,
// and the streaming of requests and responses.
//
// It neither resolves where a request is sent nor authenticates who sent it.
package backend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/internal/writetimeout"
)

// Files are the PEM files of a connection: the CA of the server and the client certificate of the proxy.
type Files struct{ CA, Cert, Key string }

// Transport is a round tripper that reloads its certificates when their files change. It connects to any number of
// hosts; requests of different users share the connections to a host.
type Transport struct {
	name string
	// newTLSConfig returns a configuration with the present content of the files.
	newTLSConfig func() (*tls.Config, error)
	// proxy returns the HTTP proxy of a request; nil for that of the environment.
	proxy   proxyFunc
	files   []watchedFile
	current atomic.Pointer[transports]
	// reloading serializes reloads: one that read the files before a change must not replace one that read them after
	// it.
	reloading sync.Mutex
}

type proxyFunc = func(*http.Request) (*url.URL, error)

// watchedFile is a CA, or a certificate with its key, in files.
type watchedFile interface {
	dynamiccertificates.Notifier
	dynamiccertificates.ControllerRunner
}

// transports use one version of the files. Watches, which are many, have smaller buffers; upgrades need HTTP/1.1.
type transports struct{ requests, watches, upgrades *http.Transport }

// NewTransport reads the files. Run reloads them.
func NewTransport(name string, files Files) (*Transport, error) {
	ca, err := dynamiccertificates.NewDynamicCAContentFromFile("backend-ca::"+name, files.CA)
	if err != nil {
		return nil, fmt.Errorf("backend_server_ca: %w", err)
	}
	pair, err := dynamiccertificates.NewDynamicServingContentFromFiles("proxy-client-cert::"+name, files.Cert, files.Key)
	if err != nil {
		return nil, fmt.Errorf("proxy_client_cert and proxy_client_key: %w", err)
	}
	t := &Transport{name: name, files: []watchedFile{ca, pair}, newTLSConfig: func() (*tls.Config, error) {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(ca.CurrentCABundleContent()) {
			return nil, fmt.Errorf("%s: no certificate in it", ca.Name())
		}
		cert, err := tls.X509KeyPair(pair.CurrentCertKeyContent())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pair.Name(), err)
		}
		return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{cert}}, nil
	}}
	return t, t.start()
}

// NewTransportFor returns a transport with the TLS options of a client configuration. Run reloads the files among them.
// Other credentials are not added: see rest.HTTPWrappersForConfig.
func NewTransportFor(name string, config *rest.Config) (*Transport, error) {
	t := &Transport{name: name, proxy: config.Proxy, newTLSConfig: func() (*tls.Config, error) {
		tlsConfig, err := rest.TLSConfigFor(config)
		if tlsConfig == nil && err == nil {
			tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		return tlsConfig, err
	}}
	if config.CAFile != "" && len(config.CAData) == 0 {
		ca, err := dynamiccertificates.NewDynamicCAContentFromFile("backend-ca::"+name, config.CAFile)
		if err != nil {
			return nil, fmt.Errorf("certificate authority: %w", err)
		}
		t.files = append(t.files, ca)
	}
	if config.CertFile != "" && config.KeyFile != "" && len(config.CertData) == 0 && len(config.KeyData) == 0 {
		pair, err := dynamiccertificates.NewDynamicServingContentFromFiles("proxy-client-cert::"+name, config.CertFile, config.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("client certificate and key: %w", err)
		}
		t.files = append(t.files, pair)
	}
	return t, t.start()
}

// start builds the first transports, and is notified of changes.
func (t *Transport) start() error {
	if err := t.reload(); err != nil {
		return err
	}
	for _, file := range t.files {
		file.AddListener(t)
	}
	return nil
}

// Run watches the files until the context ends, and then closes idle connections.
func (t *Transport) Run(ctx context.Context) {
	var watching sync.WaitGroup
	for _, file := range t.files {
		watching.Go(func() { file.Run(ctx, 1) })
	}
	watching.Wait()
	<-ctx.Done()
	t.current.Load().closeIdleConnections()
}

// Enqueue implements dynamiccertificates.Listener: a file has changed. Connections in use stay open; new ones use the
// new files.
func (t *Transport) Enqueue() {
	if err := t.reload(); err != nil {
		klog.ErrorS(err, "Failed to reload the certificates of a backend, the previous ones stay in use", "backend", t.name)
	}
}

func (t *Transport) reload() error {
	t.reloading.Lock()
	defer t.reloading.Unlock()
	config, err := t.newTLSConfig()
	if err != nil {
		return err
	}
	current := &transports{
		requests: newHTTP2Transport(config, t.proxy, requestWindow), watches: newHTTP2Transport(config, t.proxy, watchWindow), upgrades: newHTTP1Transport(config, t.proxy),
	}
	if former := t.current.Swap(current); former != nil {
		former.closeIdleConnections()
	}
	return nil
}

func (t *transports) closeIdleConnections() {
	t.requests.CloseIdleConnections()
	t.watches.CloseIdleConnections()
	t.upgrades.CloseIdleConnections()
}

// An HTTP/2 connection without traffic for readIdleTimeout is pinged, and closed without a response. Requests on a
// connection to an unreachable machine fail after the sum of both.
const (
	readIdleTimeout = 5 * time.Second
	pingTimeout     = 5 * time.Second
)

// Bytes of a response that the proxy reads ahead of its client. There is no limit for a connection, because a client that
// does not read would block others that share it.
const (
	requestWindow = 256 << 10
	watchWindow   = 64 << 10
)

func newHTTP2Transport(config *tls.Config, proxy proxyFunc, window int) *http.Transport {
	transport := utilnet.SetOldTransportDefaults(newTransport(config, proxy))
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	transport.Protocols.SetHTTP2(true)
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: readIdleTimeout, PingTimeout: pingTimeout, MaxReceiveBufferPerStream: window}
	return transport
}

func newHTTP1Transport(config *tls.Config, proxy proxyFunc) *http.Transport {
	transport := newTransport(config, proxy)
	transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	return utilnet.SetOldTransportDefaults(transport)
}

// newTransport returns a transport without a time limit for responses: watches are open for any time. Keep-alives and
// pings detect broken connections.
func newTransport(config *tls.Config, proxy proxyFunc) *http.Transport {
	return &http.Transport{
		Proxy:               proxy,
		DialContext:         newDialer().DialContext,
		TLSClientConfig:     config.Clone(),
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 25,
		IdleConnTimeout:     90 * time.Second,
		// Responses keep the encoding that the client and the backend negotiate.
		DisableCompression: true,
	}
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	current := t.current.Load()
	if isUpgrade(req) {
		return current.upgrades.RoundTrip(req)
	}
	if writetimeout.IsWatch(req) {
		return current.watches.RoundTrip(req)
	}
	return current.requests.RoundTrip(req)
}

// IsLongRunning reports whether the response is open for any time: a watch or an upgraded connection. Its limit and its
// buffers are others than those of a request that ends.
func IsLongRunning(req *http.Request) bool { return isUpgrade(req) || writetimeout.IsWatch(req) }

func isUpgrade(req *http.Request) bool {
	if req.Header.Get("Upgrade") == "" {
		return false
	}
	for _, value := range req.Header["Connection"] {
		for token := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "upgrade") {
				return true
			}
		}
	}
	return false
}
