// Package etcddial reconnects to an etcd as soon as it is available again. The backoff of gRPC, which the clients of stock storage use,
// waits up to two minutes between two attempts, and storage has no option for it: the only extension point is the dialer that an egress
// selector provides.
package etcddial

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/egressselector"
)

const (
	// probeInterval is the time between two attempts to reach an address that did not accept a connection, probeTimeout the timeout of
	// each.
	probeInterval = 500 * time.Millisecond
	probeTimeout  = 2 * time.Second
)

// ConnectParams limits the backoff of clients that are created with options of their own.
func ConnectParams() grpc.DialOption {
	return grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
		MinConnectTimeout: 5 * time.Second,
	})
}

// Dialer dials for the clients of storage. If an address refuses connections, the first attempt of a client fails, so that its requests
// fail immediately; the next attempt lasts until the address accepts connections, independent of how long that takes. gRPC waits after
// failed attempts, longer after each of them: with a lasting attempt, it waits at most two seconds.
type Dialer struct {
	ctx    context.Context
	cancel context.CancelFunc

	probing sync.WaitGroup
	mu      sync.Mutex
	// outages contains the addresses for which clients wait, with channels that are closed when they accept connections. Each address is
	// probed once for all clients.
	outages map[string]chan struct{}
}

// New returns a dialer. It must be closed.
func New() *Dialer {
	d := &Dialer{outages: map[string]chan struct{}{}}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// Close ends all attempts, and returns when all goroutines have ended.
func (d *Dialer) Close() {
	d.mu.Lock()
	d.cancel() // under the lock: afterwards no probe starts
	d.mu.Unlock()
	d.probing.Wait()
}

// Lookup implements egressselector.Lookup. Stock storage calls it once for each client.
func (d *Dialer) Lookup(egressselector.NetworkContext) (utilnet.DialFunc, error) {
	return (&client{dialer: d, failed: map[string]bool{}}).dial, nil
}

// client is the dialer of one client.
type client struct {
	dialer *Dialer

	mu sync.Mutex
	// failed contains the addresses whose last attempt failed. They are endpoints of etcd, which are fixed at the start.
	failed map[string]bool
}

func (c *client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := dial(ctx, network, address)
	if !c.setFailed(address, err != nil) || err == nil {
		return conn, err
	}
	if waited := c.dialer.wait(ctx, network, address); waited != nil {
		return nil, errors.Join(err, waited)
	}
	conn, err = dial(ctx, network, address)
	c.setFailed(address, err != nil)
	return conn, err
}

// setFailed records the result of an attempt, and returns whether the previous one failed.
func (c *client) setFailed(address string, failed bool) (before bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before = c.failed[address]
	if failed {
		c.failed[address] = true
	} else {
		delete(c.failed, address)
	}
	return before
}

// wait returns when the address accepts connections, or with the error of a canceled context. It waits beyond the deadline of the
// context, because gRPC sets a deadline for each attempt, and would wait after it.
func (d *Dialer) wait(ctx context.Context, network, address string) error {
	ended, done := d.probe(network, address), ctx.Done()
	for {
		select {
		case <-ended:
			return nil
		case <-d.ctx.Done():
			return d.ctx.Err()
		case <-done:
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			done = nil
		}
	}
}

// probe starts to probe an address, unless that is already being probed, and returns the channel that is closed when the address accepts
// connections.
func (d *Dialer) probe(network, address string) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ended := d.outages[address]; ended != nil {
		return ended
	}
	ended := make(chan struct{})
	if d.ctx.Err() == nil {
		d.outages[address] = ended
		d.probing.Go(func() { d.runProbe(network, address, ended) })
	}
	return ended
}

func (d *Dialer) runProbe(network, address string, ended chan struct{}) {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for !d.accepts(network, address) {
		select {
		case <-ticker.C:
		case <-d.ctx.Done():
			return
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.outages, address)
	close(ended)
}

func (d *Dialer) accepts(network, address string) bool {
	ctx, cancel := context.WithTimeout(d.ctx, probeTimeout)
	defer cancel()
	conn, err := dial(ctx, network, address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, network, address)
}
