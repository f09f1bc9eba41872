package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

const (
	idleTimeout = 90 * time.Second
	// shutdownTimeout is how long the server waits for running requests when it shuts down. Watches end immediately.
	shutdownTimeout = 10 * time.Second
	// maxHeaderBytes is enough for tokens with many groups.
	maxHeaderBytes = 64 << 10
	// maxStreams is the maximum number of concurrent requests on an HTTP/2 connection.
	maxStreams = 100
)

// Server is an HTTP server with an open listener.
type Server struct {
	cfg         Config
	listener    net.Listener
	certificate *certwatcher.CertWatcher // nil for plain HTTP
}

// Listen listens on an address and reads the certificate, which the server reloads when the files change. Without files, the server speaks
// plain HTTP.
func Listen(address, certFile, keyFile string, cfg Config) (*Server, error) {
	s := &Server{cfg: cfg}
	var err error
	if certFile != "" {
		if s.certificate, err = certwatcher.New(certFile, keyFile); err != nil {
			return nil, fmt.Errorf("the serving certificate: %w", err)
		}
	}
	if s.listener, err = net.Listen("tcp", address); err != nil {
		return nil, err
	}
	return s, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// NeedLeaderElection makes every replica serve.
func (s *Server) NeedLeaderElection() bool { return false }

// Start serves until the context ends, and then waits for running requests. It implements manager.Runnable.
func (s *Server) Start(ctx context.Context) error {
	handler, err := NewHandler(ctx, s.cfg)
	if err != nil {
		_ = s.listener.Close()
		return err
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: s.cfg.Limits.HeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog: log.New(verbose{s.cfg}, "", 0),
	}
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	serve, listener := server.Serve, s.cfg.Limits.Write.NewListener(s.listener)
	if s.certificate != nil {
		running.Go(func() {
			if err := s.certificate.Start(ctx); err != nil {
				s.cfg.Log.Error(err, "The serving certificate will not be reloaded")
			}
		})
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certificate.GetCertificate}
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	running.Go(func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close()
		}
	})
	s.cfg.Log.Info("Serving the portal and the API of workspaces", "address", s.Addr().String(), "tls", s.certificate != nil)
	if err := serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving at %s: %w", s.Addr(), err)
	}
	return nil
}

// verbose receives the log of net/http about connections of clients.
type verbose struct{ cfg Config }

// Write implements io.Writer.
func (v verbose) Write(p []byte) (int, error) {
	v.cfg.Log.V(1).Info(string(p))
	return len(p), nil
}
