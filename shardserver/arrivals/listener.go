package arrivals

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// keepAlive is how often a silent connection is probed, as upstream has it for those that it knows the type of.
const keepAlive = 3 * time.Minute

// Listen returns a listener whose connections pass the gate with what they receive, until it is closed.
func (g *Gate) Listen(inner net.Listener) (net.Listener, error) {
	if err := g.guard(); err != nil {
		return nil, fmt.Errorf("guarding a port: %w", err)
	}
	return &listener{inner, g}, nil
}

type listener struct {
	net.Listener
	gate *Gate
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := accepted.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: keepAlive, Interval: keepAlive})
	}
	return &connection{accepted, l.gate}, nil
}

// Close implements net.Listener.
func (l *listener) Close() error {
	return errors.Join(l.Listener.Close(), l.gate.leave())
}

type connection struct {
	net.Conn
	gate *Gate
}

// Read implements net.Conn. What has been received is decrypted and parsed by the caller, later if need be.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.gate.Pass()
	}
	return n, err
}

// With has requests that share a connection pass the gate one by one, before anything else is done about them.
func (g *Gate) With(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor > 1 {
			g.Pass()
		}
		handler.ServeHTTP(w, r)
	})
}
