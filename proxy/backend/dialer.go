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
	// dialTimeout bounds one attempt to connect.
	dialTimeout = 5 * time.Second
	// retryInterval is how long an address whose last attempt timed out is not dialed. Requests for it fail at once.
	retryInterval = time.Second
	// maxConcurrentDials bounds the concurrent attempts to connect to one address. Further ones wait.
	maxConcurrentDials = 64
	// dialStateTTL is how long the timeout of an address that nothing dials is kept.
	dialStateTTL = time.Minute
)

// errUnresponsive is the error for an address whose last attempt timed out.
var errUnresponsive = errors.New("the backend did not accept a connection")

// dialer limits what a backend that drops packets costs: without it, each request would hold a socket for
// dialTimeout. An address that refuses connections fails at once and is dialed for each request.
type dialer struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu sync.Mutex
	// addresses has the addresses that are being dialed or timed out lately. Tenants can add addresses (mounts):
	// entries are removed when they have no information.
	addresses map[string]*dialState
}

// dialState is the state of one address.
type dialState struct {
	running int
	// timedOut is when the last attempt timed out; zero if it did not.
	timedOut time.Time
	// changed is closed when an attempt ends.
	changed chan struct{}
}

func newDialer() *dialer {
	return &dialer{dial: (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext, addresses: map[string]*dialState{}}
}

// DialContext connects. It fails at once while the address is unresponsive.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if err := d.acquire(ctx, address); err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%s: %w", address, err)}
	}
	conn, err := d.dial(ctx, network, address)
	d.release(address, isTimeout(ctx, err))
	return conn, err
}

// acquire waits until another attempt may run. It fails when the context ends, and if the address timed out and another
// attempt is running or retryInterval has not passed.
func (d *dialer) acquire(ctx context.Context, address string) error {
	for {
		changed, err := d.tryAcquire(address)
		if changed == nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryAcquire returns a channel to wait for if the maximum of attempts is running.
func (d *dialer) tryAcquire(address string) (changed <-chan struct{}, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	state := d.addresses[address]
	if state == nil {
		state = &dialState{changed: make(chan struct{})}
		d.addresses[address] = state
		d.prune()
	}
	switch {
	case !state.timedOut.IsZero() && (state.running > 0 || time.Since(state.timedOut) < retryInterval):
		return nil, errUnresponsive
	case state.running < maxConcurrentDials:
		state.running++
		return nil, nil
	}
	return state.changed, nil
}

func (d *dialer) release(address string, timedOut bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	state := d.addresses[address]
	state.running--
	state.timedOut = time.Time{}
	if timedOut {
		state.timedOut = time.Now()
	} else if state.running == 0 {
		delete(d.addresses, address)
	}
	close(state.changed)
	state.changed = make(chan struct{})
}

// prune removes addresses that timed out and were not dialed since. Callers must hold mu.
func (d *dialer) prune() {
	for address, state := range d.addresses {
		if state.running == 0 && !state.timedOut.IsZero() && time.Since(state.timedOut) > dialStateTTL {
			delete(d.addresses, address)
		}
	}
}

// isTimeout reports whether the address did not answer in time; a canceled context does not count.
func isTimeout(ctx context.Context, err error) bool {
	var timeout net.Error
	return err != nil && ctx.Err() == nil && errors.As(err, &timeout) && timeout.Timeout()
}
