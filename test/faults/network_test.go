package faults

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/atoll-dev/atoll/test/programs"
	"github.com/atoll-dev/atoll/test/sharded"
)

// Addresses of a cache server in a separate network: a network namespace, joined by one veth pair.
const (
	namespace        = "atoll-faults"
	hostDevice       = "atoll-f0"
	hostAddress      = "10.213.77.1"
	namespaceAddress = "10.213.77.2"
)

// runIP runs the ip command.
func runIP(arguments string) error {
	if output, err := exec.Command("ip", strings.Fields(arguments)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", arguments, err, output)
	}
	return nil
}

// newNetworkNamespace creates a network namespace that is removed with the test.
func newNetworkNamespace(t *testing.T) sharded.Host {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("creating a network namespace needs root")
	}
	_ = runIP("netns del " + namespace) // left by a run that was killed
	t.Cleanup(func() { _ = runIP("netns del " + namespace) })
	for _, step := range []string{
		"netns add " + namespace,
		"link add " + hostDevice + " type veth peer name atoll-f1 netns " + namespace,
		"addr add " + hostAddress + "/30 dev " + hostDevice,
		"link set " + hostDevice + " up",
		"-n " + namespace + " addr add " + namespaceAddress + "/30 dev atoll-f1",
		"-n " + namespace + " link set atoll-f1 up",
		"-n " + namespace + " link set lo up",
	} {
		if err := runIP(step); err != nil {
			t.Fatal(err)
		}
	}
	return sharded.Host{Address: namespaceAddress, Command: []string{"ip", "netns", "exec", namespace}}
}

// TestCacheNetworkPartition drops packets: no connection is refused or closed. Tenants are unaffected; pending
// operations complete when the network recovers.
func TestCacheNetworkPartition(t *testing.T) {
	s := newEnv(t, sharded.Options{Hosts: map[string]sharded.Host{sharded.CacheServer: newNetworkNamespace(t)}})
	before := s.countFailures()
	if err := runIP("link set " + hostDevice + " down"); err != nil {
		t.Fatal(err)
	}
	s.expectServing(before, root, alpha, beta)
	s.requestWorkspace("during-the-cut", beta)
	s.createWorkspace("local-during-the-cut", root)
	s.expectServing(before, root, alpha, beta)
	if err := runIP("link set " + hostDevice + " up"); err != nil {
		t.Fatal(err)
	}
	s.waitReady("during-the-cut")
	s.expectServing(before, root, alpha, beta)
	s.finish()
}

// relay forwards connections, with a delay for their data.
type relay struct {
	listener net.Listener
	target   func() string
	delay    atomic.Int64
	running  sync.WaitGroup
}

func newRelay(t *testing.T, target func() string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: listener, target: target}
	ctx, cancel := context.WithCancel(context.Background())
	r.running.Go(func() { r.run(ctx) })
	t.Cleanup(func() {
		cancel()
		listener.Close()
		r.running.Wait()
	})
	return r
}

func (r *relay) run(ctx context.Context) {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", r.target())
		if err != nil {
			in.Close()
			continue
		}
		stop := context.AfterFunc(ctx, func() { in.Close(); out.Close() })
		var both sync.WaitGroup
		for _, direction := range [][2]net.Conn{{in, out}, {out, in}} {
			both.Go(func() {
				defer direction[1].Close()
				_, _ = io.Copy(direction[1], delayedConn{direction[0], r})
			})
		}
		r.running.Go(func() { both.Wait(); stop() })
	}
}

// delayedConn delays reads.
type delayedConn struct {
	net.Conn
	relay *relay
}

func (s delayedConn) Read(into []byte) (int, error) {
	n, err := s.Conn.Read(into)
	time.Sleep(time.Duration(s.relay.delay.Load()))
	return n, err
}

// TestSlowCache delays every packet to and from the cache. Tenants are unaffected; operations that need the cache
// complete later.
func TestSlowCache(t *testing.T) {
	var layout atomic.Pointer[sharded.Layout]
	target := programs.FreeAddress(t) // refuses connections until the address of the cache is set
	r := newRelay(t, func() string {
		if l := layout.Load(); l != nil {
			return strings.TrimPrefix(l.URL(sharded.CacheServer), "https://")
		}
		return target
	})
	s := newEnv(t, sharded.Options{Relays: map[string]string{sharded.CacheServer: r.listener.Addr().String()}, OnPrepared: layout.Store})
	before := s.countFailures()
	r.delay.Store(int64(time.Second))
	s.expectServing(before, root, alpha, beta)
	s.createWorkspace("by-a-slow-cache", beta)
	s.expectServing(before, root, alpha, beta)
	s.finish()
}
