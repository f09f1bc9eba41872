package etcddial

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/egressselector"
)

// refusing returns an address that refuses connections, and a function that makes it accept them.
func refusing(t *testing.T) (address string, accept func()) {
	t.Helper()
	listen := func(address string) net.Listener {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		return listener
	}
	reserved := listen("127.0.0.1:0")
	address = reserved.Addr().String()
	reserved.Close()
	return address, func() {
		listener := listen(address)
		t.Cleanup(func() { listener.Close() })
	}
}

func newClient(t *testing.T, d *Dialer) utilnet.DialFunc {
	t.Helper()
	dial, err := d.Lookup(egressselector.Etcd.AsNetworkContext())
	if err != nil {
		t.Fatal(err)
	}
	return dial
}

func TestDialer(t *testing.T) {
	defer goleak.VerifyNone(t)
	address, accept := refusing(t)
	dialer := New()
	defer dialer.Close()
	one, other := newClient(t, dialer), newClient(t, dialer)
	for name, dial := range map[string]utilnet.DialFunc{"one": one, "other": other} {
		if _, err := dial(t.Context(), "tcp", address); err == nil {
			t.Fatalf("the first attempt of %s succeeded", name)
		}
	}

	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	results := make(chan error, 2)
	attempt := func(ctx context.Context, dial utilnet.DialFunc) {
		conn, err := dial(ctx, "tcp", address)
		if err == nil {
			conn.Close()
		}
		results <- err
	}
	go attempt(short, one)
	<-short.Done()
	canceled, end := context.WithCancel(t.Context())
	go attempt(canceled, other)
	end()
	if err := <-results; !errors.Is(err, context.Canceled) {
		t.Errorf("the attempt that ends first returns %v, want the canceled one", err)
	}
	go attempt(t.Context(), other)
	accept()
	// An attempt whose deadline has passed also continues, so that the next one of its client is not delayed.
	var failed int
	for range 2 {
		if err := <-results; err != nil {
			failed++
		}
	}
	if failed != 1 {
		t.Errorf("%d attempts failed, want the one whose deadline had passed", failed)
	}
	if conn, err := one(t.Context(), "tcp", address); err != nil {
		t.Error(err)
	} else {
		conn.Close()
	}
	if len(dialer.outages) != 0 {
		t.Errorf("addresses that accept connections are probed: %v", dialer.outages)
	}
}

func TestCloseEndsAttempts(t *testing.T) {
	defer goleak.VerifyNone(t)
	address, _ := refusing(t)
	dialer := New()
	dial := newClient(t, dialer)
	_, _ = dial(t.Context(), "tcp", address)
	result := make(chan error)
	go func() {
		_, err := dial(t.Context(), "tcp", address)
		result <- err
	}()
	dialer.Close()
	if err := <-result; err == nil {
		t.Error("the attempt succeeded")
	}
	if _, err := dial(t.Context(), "tcp", address); err == nil {
		t.Error("an attempt after the end succeeded")
	}
}
