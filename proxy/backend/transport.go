// Package backend sends requests on to shards and other servers: the connections, their certificates, and the
// streaming of requests and answers.
//
// It does not decide where a request goes nor who sent it.
package backend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"
)

// Files are the PEM files of a connection: the CA of the server, the pair that the proxy presents.
type Files struct{ CA, Cert, Key string }

// Transport is a round tripper whose certificates follow their files. It serves any number of hosts: connections are
// pooled for each of them, and requests of different users share them.
type Transport struct {
	ca   *dynamiccertificates.DynamicFileCAContent
	pair *dynamiccertificates.DynamicCertKeyPairContent
	now  atomic.Pointer[pools]
	// rebuilding keeps what read the files before one of them changed from taking the place of what read them after.
	rebuilding sync.Mutex
}

// pools are the connections made with one state of the files. Upgrades have their own, because they need HTTP/1.1.
type pools struct{ requests, upgrades *http.Transport }

// NewTransport reads the files. Run keeps them up to date.
func NewTransport(name string, files Files) (*Transport, error) {
	ca, err := dynamiccertificates.NewDynamicCAContentFromFile("backend-ca::"+name, files.CA)
	if err != nil {
		return nil, fmt.Errorf("backend_server_ca: %w", err)
	}
	pair, err := dynamiccertificates.NewDynamicServingContentFromFiles("proxy-client-cert::"+name, files.Cert, files.Key)
	if err != nil {
		return nil, fmt.Errorf("proxy_client_cert and proxy_client_key: %w", err)
	}
	t := &Transport{ca: ca, pair: pair}
	if err := t.rebuild(); err != nil {
		return nil, err
	}
	ca.AddListener(t)
	pair.AddListener(t)
	return t, nil
}

// Run follows the files until the context ends, then closes what is idle.
func (t *Transport) Run(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.ca.Run(ctx, 1)
	}()
	t.pair.Run(ctx, 1)
	<-done
	t.now.Load().close()
}

// Enqueue is called when a file has changed. Connections in use go on; new ones use the new files.
func (t *Transport) Enqueue() {
	if err := t.rebuild(); err != nil {
		klog.ErrorS(err, "Keeping the former certificates of a backend", "ca", t.ca.Name(), "pair", t.pair.Name())
	}
}

func (t *Transport) rebuild() error {
	t.rebuilding.Lock()
	defer t.rebuilding.Unlock()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(t.ca.CurrentCABundleContent()) {
		return fmt.Errorf("%s: no certificate in it", t.ca.Name())
	}
	cert, err := tls.X509KeyPair(t.pair.CurrentCertKeyContent())
	if err != nil {
		return fmt.Errorf("%s: %w", t.pair.Name(), err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{cert}}
	if old := t.now.Swap(&pools{requests: newPool(config, true), upgrades: newPool(config, false)}); old != nil {
		old.close()
	}
	return nil
}

func (p *pools) close() {
	p.requests.CloseIdleConnections()
	p.upgrades.CloseIdleConnections()
}

// A connection on which nothing came for a while is asked for a sign of life, and given up without one. Requests on a
// connection to a machine that vanished wait this long altogether.
const (
	pingAfter   = 5 * time.Second
	pingTimeout = 5 * time.Second
)

// newPool returns connections without a time limit on answers: a watch is open for as long as it likes. What ends a
// dead connection are keep-alives and, for HTTP/2, pings.
func newPool(config *tls.Config, multiplexed bool) *http.Transport {
	pool := &http.Transport{
		DialContext:         newDialer().DialContext,
		TLSClientConfig:     config.Clone(),
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 25,
		IdleConnTimeout:     90 * time.Second,
		// What a client accepts is the client's business: answers pass as they are.
		DisableCompression: true,
	}
	if multiplexed {
		pool = utilnet.SetOldTransportDefaults(pool)
		h2, err := http2.ConfigureTransports(pool)
		if err != nil {
			panic(err) // the pool is new: nothing else can have configured it
		}
		h2.ReadIdleTimeout, h2.PingTimeout = pingAfter, pingTimeout
		return pool
	}
	pool.TLSClientConfig.NextProtos = []string{"http/1.1"}
	pool.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	return utilnet.SetOldTransportDefaults(pool)
}

// RoundTrip sends the request once; nothing is tried again.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	pools := t.now.Load()
	if isUpgrade(req) {
		return pools.upgrades.RoundTrip(req)
	}
	return pools.requests.RoundTrip(req)
}

func isUpgrade(req *http.Request) bool {
	if req.Header.Get("Upgrade") == "" {
		return false
	}
	for _, value := range req.Header["Connection"] {
		for _, token := range strings.Split(value, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "upgrade") {
				return true
			}
		}
	}
	return false
}
