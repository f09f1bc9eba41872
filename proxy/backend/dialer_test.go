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

// silence is a network in which nothing answers while it lasts.
type silence struct {
	lasts   atomic.Bool
	dialing atomic.Int64
	most    atomic.Int64
	dialed  atomic.Int64
}

func (s *silence) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	now := s.dialing.Add(1)
	defer s.dialing.Add(-1)
	s.dialed.Add(1)
	if now > s.most.Load() {
		s.most.Store(now)
	}
	if !s.lasts.Load() {
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

func TestASilentBackendHoldsFewAndOnlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &silence{}
		network.lasts.Store(true)
		d := newDialer()
		d.dial = network.dial

		var waiting sync.WaitGroup
		for range 1000 {
			waiting.Go(func() {
				if conn, err := d.DialContext(t.Context(), "tcp", "far:1"); err == nil {
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
		if network.most.Load() > maxDials || network.dialed.Load() > maxDials {
			t.Errorf("%d connections at once and %d altogether, at most %d are allowed", network.most.Load(), network.dialed.Load(), maxDials)
		}

		started = time.Now()
		_, err := d.DialContext(t.Context(), "tcp", "far:1")
		if !errors.Is(err, errSilent) || time.Since(started) != 0 || !unsent(err) {
			t.Errorf("got %v after %s, want an error at once", err, time.Since(started))
		}
		if _, err := d.DialContext(t.Context(), "tcp", "other:1"); errors.Is(err, errSilent) {
			t.Error("another address is not tried")
		}

		network.lasts.Store(false)
		time.Sleep(2 * silentPause)
		conn, err := d.DialContext(t.Context(), "tcp", "far:1")
		if err != nil {
			t.Fatalf("the backend is back, and: %v", err)
		}
		_ = conn.Close()
		time.Sleep(2 * time.Minute)
		if conn, err := d.DialContext(t.Context(), "tcp", "third:1"); err != nil {
			t.Error(err)
		} else {
			_ = conn.Close()
		}
		if len(d.addresses) != 0 {
			t.Errorf("%d addresses are remembered, want none", len(d.addresses))
		}
	})
}

func TestManyConnectionsAtOnceAreMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &silence{}
		d := newDialer()
		d.dial = network.dial
		var waiting sync.WaitGroup
		for range 1000 {
			waiting.Go(func() {
				conn, err := d.DialContext(t.Context(), "tcp", "near:1")
				if err != nil {
					t.Error(err)
					return
				}
				_ = conn.Close()
			})
		}
		waiting.Wait()
		if network.dialed.Load() != 1000 || network.most.Load() > maxDials {
			t.Errorf("%d connections, %d at once", network.dialed.Load(), network.most.Load())
		}
	})
}
