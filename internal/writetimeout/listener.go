package writetimeout

import (
	"net"
	"sync/atomic"
	"time"
)

// NewListener returns a listener whose connections fail when a write makes no progress for the timeout of responses:
// the HTTP/2 server can reset a stream only while it can write to the connection. Package http2 has this timeout as
// WriteByteTimeout, which the generic API server does not set.
func (t Timeouts) NewListener(l net.Listener) net.Listener { return listener{l, t.Response} }

type listener struct {
	net.Listener
	timeout time.Duration
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: accepted, timeout: l.timeout}, nil
}

// conn sets a deadline for each write, unless its user has set one. It is below TLS, whose records are small.
type conn struct {
	net.Conn
	timeout     time.Duration
	hasDeadline atomic.Bool
}

// Write implements net.Conn.
func (c *conn) Write(data []byte) (int, error) {
	if !c.hasDeadline.Load() {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(data)
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(deadline time.Time) error {
	c.hasDeadline.Store(!deadline.IsZero())
	return c.Conn.SetDeadline(deadline)
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(deadline time.Time) error {
	c.hasDeadline.Store(!deadline.IsZero())
	return c.Conn.SetWriteDeadline(deadline)
}
