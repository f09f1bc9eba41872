// Package startupserver answers health checks on the secure port of a server that waits for a dependency before it can serve.
package startupserver

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

// Server serves the secure port until the actual server does: it reports the process as live and not ready with the
// reason, and asks clients to retry other requests.
type Server struct {
	check string

	mu     sync.Mutex
	reason string

	server *http.Server
	done   chan struct{}
	port   *reusableListener
}

// New starts serving on the port. check is the name of the readiness check that fails. Stop leaves the port open.
func New(serving *genericapiserver.SecureServingInfo, check string) (*Server, error) {
	port, ok := serving.Listener.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("the secure port is a %T, want a TCP listener", serving.Listener)
	}
	s := &Server{check: check, done: make(chan struct{}), port: &reusableListener{TCPListener: port}, reason: "starting"}
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
			klog.ErrorS(err, "Failed to serve the secure port during startup")
		}
	}()
	return s, nil
}

// SetReason sets the reason that the readiness check returns.
func (s *Server) SetReason(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reason = err.Error()
}

// Stop stops serving and leaves the port open. Connections are closed, so that clients reconnect to the next server.
func (s *Server) Stop() error {
	_ = s.server.Close()
	<-s.done
	return s.port.resume()
}

// ServeHTTP serves health checks as the actual server does, and rejects all other requests.
func (s *Server) ServeHTTP(response http.ResponseWriter, req *http.Request) {
	path := strings.TrimSuffix(req.URL.Path, "/")
	switch {
	case path == "/livez" || strings.HasPrefix(path, "/livez/"):
		fmt.Fprint(response, "ok")
	case path == "/readyz" || path == "/healthz":
		http.Error(response, "[-]"+s.check+" failed: "+s.getReason(), http.StatusInternalServerError)
	default:
		response.Header().Set("Retry-After", "1")
		http.Error(response, "the server is starting", http.StatusServiceUnavailable)
	}
}

func (s *Server) getReason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reason
}

// reusableListener is a listener that stays open when a server closes it.
type reusableListener struct{ *net.TCPListener }

// Close makes Accept fail.
func (r *reusableListener) Close() error { return r.SetDeadline(time.Unix(0, 1)) }

// resume makes Accept wait for connections again.
func (r *reusableListener) resume() error { return r.SetDeadline(time.Time{}) }
