// Package programs builds and runs programs for tests and benchmarks: the project's own, and those it is compared with. Tests define the
// flags of programs and the requests to them.
package programs

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/atoll-dev/atoll/test/freeport"
)

// ExitTimeout bounds how long a program may take to end after a signal or on an error.
const ExitTimeout = 40 * time.Second

// Build builds packages of the module in a directory, relative to the working directory, into another one. Programs of different tests
// are linked once: all tests of a checkout build into one directory, where `go build` leaves programs that are up to date, and get links to
// them. Only one process at a time builds, because processes that build concurrently compile the same packages.
func Build(ctx context.Context, module, into string, packages ...string) error {
	module, err := filepath.Abs(module)
	if err != nil {
		return err
	}
	built, err := directoryOf(module)
	if err != nil {
		return err
	}
	for _, directory := range []string{built, into} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			return err
		}
	}
	lock, err := os.Create(filepath.Join(os.TempDir(), "atoll-programs.lock"))
	if err != nil {
		return fmt.Errorf("waiting for other builds: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("waiting for other builds: %w", err)
	}
	arguments := []string{"-C", module, "build", "-ldflags=-s -w", "-o", built + string(filepath.Separator)}
	build := exec.CommandContext(ctx, "go", append(arguments, packages...)...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", strings.Join(packages, ", "), err, output)
	}
	for _, pkg := range packages {
		name := fileName(module, pkg)
		// A later build replaces the file, and leaves that of the link. The directories may be on different file systems.
		place := exec.CommandContext(ctx, "sh", "-c", `ln -f "$0" "$1" 2>/dev/null || cp -f "$0" "$1"`, filepath.Join(built, name), filepath.Join(into, name))
		if output, err := place.CombinedOutput(); err != nil {
			return fmt.Errorf("placing %s in %s: %w\n%s", name, into, err, output)
		}
	}
	return nil
}

// directoryOf returns the directory of this checkout for the programs of a module.
func directoryOf(module string) (string, error) {
	checkout, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for directory := checkout; directory != filepath.Dir(directory); directory = filepath.Dir(directory) {
		if _, err := os.Stat(filepath.Join(directory, "go.mod")); err == nil {
			checkout = directory // modules are nested
		}
	}
	return filepath.Join(checkout, "bin", "tests", module), nil
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// fileName returns the name that `go build` gives to the program of a package.
func fileName(module, pkg string) string {
	if majorVersion.MatchString(path.Base(pkg)) {
		pkg = path.Dir(pkg)
	}
	return path.Base(path.Join(filepath.ToSlash(module), pkg))
}

// Process is a running program. It is killed with the test, which logs the end of its output if it failed.
type Process struct {
	// Name is the name given to StartAs, or the file name of the program.
	Name string

	cmd    *exec.Cmd
	output output
	exited chan struct{}
}

// output collects the output of a program for concurrent readers.
type output struct {
	mu      sync.Mutex
	content bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.content.Write(p)
}

// Start runs a program in a directory.
func Start(t testing.TB, directory, program string, args ...string) *Process {
	t.Helper()
	return StartAs(t, filepath.Base(program), directory, program, args...)
}

// StartAs is Start with a name for messages of the test.
func StartAs(t testing.TB, name, directory, program string, args ...string) *Process {
	t.Helper()
	p := &Process{Name: name, cmd: exec.Command(program, args...), exited: make(chan struct{})}
	p.cmd.Dir = directory
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // Exit returns the code
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("end of the output of %s:\n%s", p.Name, p.Tail())
		}
	})
	return p
}

// Output returns the output of the program so far.
func (p *Process) Output() string {
	p.output.mu.Lock()
	defer p.output.mu.Unlock()
	return p.output.content.String()
}

// Tail returns the end of the output.
func (p *Process) Tail() string {
	const enough = 6000
	content := p.Output()
	return content[max(0, len(content)-enough):]
}

// Directory returns the working directory of the program.
func (p *Process) Directory() string { return p.cmd.Dir }

// Exited is closed when the program has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Signal sends a signal.
func (p *Process) Signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// Exit waits for the end of the program and returns its exit code, -1 after a signal that it did not handle.
func (p *Process) Exit(t testing.TB) int {
	t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(ExitTimeout):
		t.Fatalf("%s did not end within %s", p.Name, ExitTimeout)
		return 0
	}
}

// Stop terminates the program like an init system, unless it has already ended. The test fails on a timeout.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(ExitTimeout):
		t.Errorf("%s did not end within %s after SIGTERM", p.Name, ExitTimeout)
	}
}

// FreeAddress returns a free "host:port" of the loopback interface, for programs that need their address as a flag.
func FreeAddress(t testing.TB) string {
	t.Helper()
	listener, err := freeport.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// SigningKey writes a small key for service account tokens to a file and returns its name: a shard would generate one
// of 4096 bits, which takes seconds.
func SigningKey(t testing.TB, file string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, encoded, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
