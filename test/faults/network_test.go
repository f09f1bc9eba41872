package faults

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
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
func runIP(arguments string) error { return run("ip", strings.Fields(arguments)...) }

// run runs a command that changes this machine.
func run(name string, arguments ...string) error {
	if output, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), err, output)
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

// TestSlowCache delays every response of the cache. Tenants are unaffected; operations that need the cache
// complete later.
func TestSlowCache(t *testing.T) {
	var layout atomic.Pointer[sharded.Layout]
	target := programs.FreeAddress(t) // refuses connections until the address of the cache is set
	r := programs.NewRelay(t, func() string {
		if l := layout.Load(); l != nil {
			return strings.TrimPrefix(l.URL(sharded.CacheServer), "https://")
		}
		return target
	})
	s := newEnv(t, sharded.Options{Relays: map[string]string{sharded.CacheServer: r.Address()}, OnPrepared: layout.Store})
	before := s.countFailures()
	r.SetDelay(time.Second)
	s.expectServing(before, root, alpha, beta)
	s.createWorkspace("by-a-slow-cache", beta)
	s.expectServing(before, root, alpha, beta)
	s.finish()
}
