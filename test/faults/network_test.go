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
	namespace     = "atoll-faults"
	outsideDevice = "atoll-f0"
	outside       = "10.213.77.1"
	inside        = "10.213.77.2"
)

// ip runs the ip command.
func ip(arguments string) error {
	if output, err := exec.Command("ip", strings.Fields(arguments)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", arguments, err, output)
	}
	return nil
}

// separateNetwork creates a network namespace that is removed with the test.
func separateNetwork(t *testing.T) sharded.Place {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making a network namespace needs root")
	}
	_ = ip("netns del " + namespace) // left by a run that was killed
	t.Cleanup(func() { _ = ip("netns del " + namespace) })
	for _, step := range []string{
		"netns add " + namespace,
		"link add " + outsideDevice + " type veth peer name atoll-f1 netns " + namespace,
		"addr add " + outside + "/30 dev " + outsideDevice,
		"link set " + outsideDevice + " up",
		"-n " + namespace + " addr add " + inside + "/30 dev atoll-f1",
		"-n " + namespace + " link set atoll-f1 up",
		"-n " + namespace + " link set lo up",
	} {
		if err := ip(step); err != nil {
			t.Fatal(err)
		}
	}
	return sharded.Place{Address: inside, Command: []string{"ip", "netns", "exec", namespace}}
}

// TestANetworkThatIsCutBetweenShardsAndCache: packets are dropped, and no connection is refused or closed. Tenants are
// unaffected; pending operations complete when the network is back.
func TestANetworkThatIsCutBetweenShardsAndCache(t *testing.T) {
	s := newSite(t, sharded.Options{Places: map[string]sharded.Place{sharded.CacheServer: separateNetwork(t)}})
	before := s.mark()
	if err := ip("link set " + outsideDevice + " down"); err != nil {
		t.Fatal(err)
	}
	s.serving(before, root, alpha, beta)
	s.requestWorkspace("during-the-cut", beta)
	s.workspace("local-during-the-cut", root)
	s.serving(before, root, alpha, beta)
	if err := ip("link set " + outsideDevice + " up"); err != nil {
		t.Fatal(err)
	}
	s.ready("during-the-cut")
	s.serving(before, root, alpha, beta)
	s.finish()
}

// relay forwards connections, with a delay for their data.
type relay struct {
	listener net.Listener
	to       func() string
	delay    atomic.Int64
	running  sync.WaitGroup
}

func newRelay(t *testing.T, to func() string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: listener, to: to}
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
		out, err := net.Dial("tcp", r.to())
		if err != nil {
			in.Close()
			continue
		}
		stop := context.AfterFunc(ctx, func() { in.Close(); out.Close() })
		var both sync.WaitGroup
		for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
			both.Go(func() {
				defer way[1].Close()
				_, _ = io.Copy(way[1], slow{way[0], r})
			})
		}
		r.running.Go(func() { both.Wait(); stop() })
	}
}

// slow delays reads.
type slow struct {
	net.Conn
	relay *relay
}

func (s slow) Read(into []byte) (int, error) {
	n, err := s.Conn.Read(into)
	time.Sleep(time.Duration(s.relay.delay.Load()))
	return n, err
}

// TestASlowCache: every packet to and from the cache is delayed. Tenants are unaffected, and operations that need the
// cache complete, later.
func TestASlowCache(t *testing.T) {
	var layout atomic.Pointer[sharded.Layout]
	target := programs.FreeAddress(t) // refuses connections until the address of the cache is set
	r := newRelay(t, func() string {
		if l := layout.Load(); l != nil {
			return strings.TrimPrefix(l.URL(sharded.CacheServer), "https://")
		}
		return target
	})
	s := newSite(t, sharded.Options{Via: map[string]string{sharded.CacheServer: r.listener.Addr().String()}, Prepared: layout.Store})
	before := s.mark()
	r.delay.Store(int64(time.Second))
	s.serving(before, root, alpha, beta)
	s.workspace("by-a-slow-cache", beta)
	s.serving(before, root, alpha, beta)
	s.finish()
}
