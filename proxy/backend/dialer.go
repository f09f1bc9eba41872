package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	// dialTimeout is how long a backend may take to accept a connection.
	dialTimeout = 5 * time.Second
	// silentPause is how long a backend that did not is left alone. Until then requests for it fail at once.
	silentPause = time.Second
	// maxDials bounds the connections that are being made to one address. Others wait for one of them to end.
	maxDials = 64
)

// errSilent is what dialing an address ends with that just now let others wait in vain.
var errSilent = errors.New("the backend did not accept a connection just now")

// dialer keeps a backend that swallows packets from holding a socket and the full timeout for every request that wants
// it, which others would pay for. An address that refuses costs nothing, and is tried each time.
type dialer struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu sync.Mutex
	// addresses are those that are being dialed or were silent lately. Tenants can bring addresses (mounts): entries are
	// removed as soon as they say nothing any more.
	addresses map[string]*attempts
}

// attempts is what is known about connecting to one address.
type attempts struct {
	running int
	// silent is when the last attempt ran out of time; zero when it did not.
	silent time.Time
	// ended is closed when an attempt ends.
	ended chan struct{}
}

func newDialer() *dialer {
	return &dialer{dial: (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext, addresses: map[string]*attempts{}}
}

// DialContext connects, or fails at once while the address is known to be silent.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if err := d.begin(ctx, address); err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%s: %w", address, err)}
	}
	conn, err := d.dial(ctx, network, address)
	d.end(address, ranOutOfTime(ctx, err))
	return conn, err
}

// begin waits for a turn. It fails when the context ends, or when the address is silent and somebody tries it already or
// did a moment ago.
func (d *dialer) begin(ctx context.Context, address string) error {
	for {
		d.mu.Lock()
		a := d.addresses[address]
		if a == nil {
			a = &attempts{ended: make(chan struct{})}
			d.addresses[address] = a
			d.sweep()
		}
		switch {
		case !a.silent.IsZero() && (a.running > 0 || time.Since(a.silent) < silentPause):
			d.mu.Unlock()
			return errSilent
		case a.running < maxDials:
			a.running++
			d.mu.Unlock()
			return nil
		}
		ended := a.ended
		d.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *dialer) end(address string, silent bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.addresses[address]
	a.running--
	if silent {
		a.silent = time.Now()
	} else {
		a.silent = time.Time{}
	}
	if !silent && a.running == 0 {
		delete(d.addresses, address)
	}
	close(a.ended)
	a.ended = make(chan struct{})
}

// sweep forgets what was silent long enough ago that nobody asked for it since. The caller holds mu.
func (d *dialer) sweep() {
	for address, a := range d.addresses {
		if a.running == 0 && !a.silent.IsZero() && time.Since(a.silent) > time.Minute {
			delete(d.addresses, address)
		}
	}
}

// ranOutOfTime tells whether the address did not answer in time; a caller who went away says nothing about it.
func ranOutOfTime(ctx context.Context, err error) bool {
	var timeout net.Error
	return err != nil && ctx.Err() == nil && errors.As(err, &timeout) && timeout.Timeout()
}
