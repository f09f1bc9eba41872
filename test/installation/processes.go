package installation

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/atoll-dev/atoll/test/programs"
	"github.com/atoll-dev/atoll/test/sharded"
)

// readyTimeout is generous because tests run on machines with few processors.
const readyTimeout = 2 * time.Minute

// withoutFsync precedes the command line of a server: its embedded etcd leaves the time of writes to the kernel, which keeps them when the
// process is killed.
var withoutFsync = []string{"env", "UNSAFE_E2E_HACK_DISABLE_ETCD_FSYNC=true"}

// run runs a server until the test ends.
func (i *Installation) run(t testing.TB, server sharded.Server) {
	t.Helper()
	command := slices.Concat(withoutFsync, server.Command, []string{filepath.Join(i.binaries, server.Program)}, server.Args)
	p := programs.StartAs(t, server.Name, i.directory, command[0], command[1:]...)
	t.Cleanup(func() { p.Stop(t) })
	i.mu.Lock()
	defer i.mu.Unlock()
	i.processes[server.Name] = p
}

// Process returns the most recent process of a server.
func (i *Installation) Process(t testing.TB, name string) *programs.Process {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	p := i.processes[name]
	if p == nil {
		t.Fatalf("there is no server %q in this installation", name)
	}
	return p
}

// Kill ends a server immediately, like a crash.
func (i *Installation) Kill(t testing.TB, name string) {
	t.Helper()
	p := i.Process(t, name)
	p.Signal(t, syscall.SIGKILL)
	p.Exit(t)
}

// Restart starts a server that has ended again, with its data and flags, and with additional flags if given. It does not wait.
func (i *Installation) Restart(t testing.TB, name string, more ...string) {
	t.Helper()
	server := i.server(t, name)
	server.Args = append(server.Args[:len(server.Args):len(server.Args)], more...)
	i.run(t, server)
}

// RestartOn is Restart on another host.
func (i *Installation) RestartOn(t testing.TB, name string, host sharded.Host) {
	t.Helper()
	server := i.server(t, name)
	server.Command = host.Command
	i.run(t, server)
}

// WaitReady waits until a server is ready.
func (i *Installation) WaitReady(t testing.TB, name string) {
	t.Helper()
	p := i.Process(t, name)
	ctx, cancel := context.WithTimeoutCause(context.Background(), readyTimeout, fmt.Errorf("%s took longer than %s", name, readyTimeout))
	defer cancel()
	go func() {
		select {
		case <-p.Exited():
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := i.layout.WaitReady(ctx, i.server(t, name)); err != nil {
		t.Fatalf("%v\n%s", err, p.Tail())
	}
}

func (i *Installation) server(t testing.TB, name string) sharded.Server {
	t.Helper()
	for _, server := range i.layout.Servers {
		if server.Name == name {
			return server
		}
	}
	t.Fatalf("there is no server %q in this installation", name)
	return sharded.Server{}
}
