package programs

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Relay forwards TCP connections to a server, and delivers the server's data after a delay, like a distant server: the delay applies to
// each response, independent of their number.
type Relay struct {
	listener net.Listener
	target   func() string
	delay    atomic.Int64
	running  sync.WaitGroup
}

// NewRelay starts a relay on the loopback interface that ends with the test. target returns the "host:port" of the server
// for each connection.
func NewRelay(t testing.TB, target func() string) *Relay {
	t.Helper()
	listener, err := net.Listen("tcp", FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{listener: listener, target: target}
	ctx, cancel := context.WithCancel(context.Background())
	r.running.Go(func() { r.run(ctx) })
	t.Cleanup(func() {
		cancel()
		listener.Close()
		r.running.Wait()
	})
	return r
}

// Address returns the "host:port" of the relay.
func (r *Relay) Address() string { return r.listener.Addr().String() }

// SetDelay sets the delay of all data that the server sends after the call.
func (r *Relay) SetDelay(delay time.Duration) { r.delay.Store(int64(delay)) }

func (r *Relay) run(ctx context.Context) {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.running.Go(func() { r.forward(ctx, in) })
	}
}

// forward returns when both directions of a connection have ended.
func (r *Relay) forward(ctx context.Context, in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", r.target())
	if err != nil {
		return
	}
	defer out.Close()
	defer context.AfterFunc(ctx, func() { in.Close(); out.Close() })()
	var both sync.WaitGroup
	both.Go(func() {
		defer out.Close()
		_, _ = io.Copy(out, in)
	})
	both.Go(func() {
		defer in.Close()
		r.deliver(in, out)
	})
	both.Wait()
}

// chunk is data with the time of its delivery.
type chunk struct {
	due  time.Time
	data []byte
}

// deliver copies with the delay. It continues to read while earlier data waits.
func (r *Relay) deliver(to io.WriteCloser, from io.Reader) {
	chunks := make(chan chunk, 1024)
	r.running.Go(func() {
		defer close(chunks)
		for {
			data := make([]byte, 32<<10)
			n, err := from.Read(data)
			if n > 0 {
				chunks <- chunk{time.Now().Add(time.Duration(r.delay.Load())), data[:n]}
			}
			if err != nil {
				return
			}
		}
	})
	failed := false
	for c := range chunks {
		if failed {
			continue // until the reader has noticed that the connection is closed
		}
		time.Sleep(time.Until(c.due))
		if _, err := to.Write(c.data); err != nil {
			failed = true
			to.Close()
		}
	}
}
