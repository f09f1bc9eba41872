package cacheserver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/cacheserver/client"
)

// loopbackServer lets the background work of a cache use its own API, as system:masters, over in-memory connections: it
// watches its own objects in the same way as those of its parent.
type loopbackServer struct {
	connections chan net.Conn
	closed      chan struct{}
	close       func()
	server      *http.Server
	serving     sync.WaitGroup
}

// newLoopbackServer serves the handler until Close.
func newLoopbackServer(handler http.Handler) *loopbackServer {
	l := &loopbackServer{connections: make(chan net.Conn), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	masters := &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}}
	l.server = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			handler.ServeHTTP(w, req.WithContext(request.WithUser(req.Context(), masters)))
		}),
	}
	l.serving.Go(func() { _ = l.server.Serve(l) })
	return l
}

// Client returns a client whose requests never leave the process.
func (l *loopbackServer) Client() (*client.Client, error) {
	return client.New(&rest.Config{Host: "http://loopback", Dial: l.dial}, "")
}

// Stop closes all connections and returns when no request is served.
func (l *loopbackServer) Stop() {
	_ = l.server.Close()
	l.serving.Wait()
}

func (l *loopbackServer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.connections <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (l *loopbackServer) Accept() (net.Conn, error) {
	select {
	case connection := <-l.connections:
		return connection, nil
	case <-l.closed:
		return nil, errors.Join(net.ErrClosed, http.ErrServerClosed)
	}
}

// Close implements net.Listener.
func (l *loopbackServer) Close() error { l.close(); return nil }

// Addr implements net.Listener.
func (l *loopbackServer) Addr() net.Addr { return &net.UnixAddr{Name: "loopback", Net: "pipe"} }
