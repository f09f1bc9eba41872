package join

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"
)

// StartupServer serves the shard's port until the shard is ready to serve: it reports the process as live and not ready
// with the reason, and asks clients to retry other requests.
type StartupServer struct {
	mu     sync.Mutex
	reason string

	server *http.Server
	done   chan struct{}
	port   *reusableListener
}

// NewStartupServer starts serving on the port. Stop leaves the port open.
func NewStartupServer(serving *genericapiserver.SecureServingInfo) (*StartupServer, error) {
	port, ok := serving.Listener.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("the secure port is a %T, want a TCP listener", serving.Listener)
	}
	s := &StartupServer{done: make(chan struct{}), port: &reusableListener{TCPListener: port}, reason: "starting"}
	s.server = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				pair, err := tls.X509KeyPair(serving.Cert.CurrentCertKeyContent())
				return &pair, err
			},
		},
	}
	go func() {
		defer close(s.done)
		if err := s.server.ServeTLS(s.port, "", ""); !errors.Is(err, http.ErrServerClosed) {
			klog.ErrorS(err, "Serving the secure port during startup failed")
		}
	}()
	return s, nil
}

// SetReason sets the reason that the readiness check returns.
func (s *StartupServer) SetReason(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reason = err.Error()
}

// Stop stops serving and leaves the port open. Connections are closed, so that clients reconnect to the next server.
func (s *StartupServer) Stop() error {
	_ = s.server.Close()
	<-s.done
	return s.port.resume()
}

// ServeHTTP serves health checks as the shard does, and rejects all other requests.
func (s *StartupServer) ServeHTTP(response http.ResponseWriter, req *http.Request) {
	path := strings.TrimSuffix(req.URL.Path, "/")
	switch {
	case path == "/livez" || strings.HasPrefix(path, "/livez/"):
		fmt.Fprint(response, "ok")
	case path == "/readyz" || path == "/healthz":
		http.Error(response, "[-]identities failed: "+s.getReason(), http.StatusInternalServerError)
	default:
		response.Header().Set("Retry-After", "1")
		http.Error(response, "the shard is starting", http.StatusServiceUnavailable)
	}
}

func (s *StartupServer) getReason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reason
}

// reusableListener is a listener that stays open when a server closes it.
type reusableListener struct{ *net.TCPListener }

// Close makes Accept fail.
func (b *reusableListener) Close() error { return b.SetDeadline(time.Unix(0, 1)) }

// resume makes Accept wait for connections again.
func (b *reusableListener) resume() error { return b.SetDeadline(time.Time{}) }
