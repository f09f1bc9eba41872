package arrivals

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
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
	return &connection{Conn: accepted, gate: l.gate}, nil
}

// Close implements net.Listener.
func (l *listener) Close() error {
	return errors.Join(l.Listener.Close(), l.gate.leave())
}

// connection is read by one goroutine at a time until its handshake is done, and written by the same.
type connection struct {
	net.Conn
	gate *Gate
	// answered: the server has done its part of a handshake, which is the dear one, or has refused it. From then on what
	// is received counts as a request.
	answered atomic.Bool
	greeted  atomic.Bool // and has not parted
	closed   atomic.Bool
}

// Read implements net.Conn. What has been received is decrypted and parsed by the caller, later if need be.
func (c *connection) Read(p []byte) (int, error) {
	c.part() // it was not the whole hello
	n, err := c.Conn.Read(p)
	switch {
	case n == 0:
	case c.answered.Load():
		c.gate.Pass()
	default:
		c.gate.greet()
		c.greeted.Store(true)
		if c.closed.Load() { // meanwhile, by somebody else
			c.part()
		}
	}
	return n, err
}

// Write implements net.Conn.
func (c *connection) Write(p []byte) (int, error) {
	c.answered.Store(true)
	c.part()
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.closed.Store(true)
	c.part()
	return c.Conn.Close()
}

func (c *connection) part() {
	if c.greeted.CompareAndSwap(true, false) {
		c.gate.part()
	}
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
