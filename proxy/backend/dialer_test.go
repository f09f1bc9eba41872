package backend

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fakeNetwork is a network that drops packets while dropping is set.
type fakeNetwork struct {
	dropping   atomic.Bool
	concurrent atomic.Int64
	maximum    atomic.Int64
	dialed     atomic.Int64
}

func (n *fakeNetwork) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	now := n.concurrent.Add(1)
	defer n.concurrent.Add(-1)
	n.dialed.Add(1)
	if now > n.maximum.Load() {
		n.maximum.Store(now)
	}
	if !n.dropping.Load() {
		time.Sleep(time.Millisecond)
		a, b := net.Pipe()
		_ = b.Close()
		return a, nil
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(dialTimeout):
		return nil, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	}
}

func TestUnresponsiveBackendIsDialedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &fakeNetwork{}
		network.dropping.Store(true)
		d := newDialer()
		d.dial = network.dial

		var waiting sync.WaitGroup
		for range 1000 {
			waiting.Go(func() {
				if conn, err := d.DialContext(t.Context(), "tcp", "shard:1"); err == nil {
					_ = conn.Close()
					t.Error("connected")
				}
			})
		}
		started := time.Now()
		waiting.Wait()
		if took := time.Since(started); took > dialTimeout+time.Second {
			t.Errorf("a thousand requests waited %s, want one timeout", took)
		}
		if network.maximum.Load() > maxConcurrentDials || network.dialed.Load() > maxConcurrentDials {
			t.Errorf("%d concurrent connections and %d in total, at most %d are allowed", network.maximum.Load(), network.dialed.Load(), maxConcurrentDials)
		}

		started = time.Now()
		_, err := d.DialContext(t.Context(), "tcp", "shard:1")
		if !errors.Is(err, errUnresponsive) || time.Since(started) != 0 || !isUnsent(err) {
			t.Errorf("got %v after %s, want an error at once", err, time.Since(started))
		}
		if _, err := d.DialContext(t.Context(), "tcp", "other:1"); errors.Is(err, errUnresponsive) {
			t.Error("another address is not dialed")
		}

		network.dropping.Store(false)
		time.Sleep(2 * retryInterval)
		conn, err := d.DialContext(t.Context(), "tcp", "shard:1")
		if err != nil {
			t.Fatalf("after the recovery of the backend: %v", err)
		}
		_ = conn.Close()
		time.Sleep(2 * time.Minute)
		if conn, err := d.DialContext(t.Context(), "tcp", "third:1"); err != nil {
			t.Error(err)
		} else {
			_ = conn.Close()
		}
		if len(d.addresses) != 0 {
			t.Errorf("%d addresses are kept, want none", len(d.addresses))
		}
	})
}

func TestConcurrentDialsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &fakeNetwork{}
		d := newDialer()
		d.dial = network.dial
		var waiting sync.WaitGroup
		for range 1000 {
			waiting.Go(func() {
				conn, err := d.DialContext(t.Context(), "tcp", "shard:1")
				if err != nil {
					t.Error(err)
					return
				}
				_ = conn.Close()
			})
		}
		waiting.Wait()
		if network.dialed.Load() != 1000 || network.maximum.Load() > maxConcurrentDials {
			t.Errorf("%d connections, %d concurrent", network.dialed.Load(), network.maximum.Load())
		}
	})
}
