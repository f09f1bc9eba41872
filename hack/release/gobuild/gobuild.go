// Package gobuild runs go build and reports its progress: a first build compiles all of Kubernetes, which takes minutes in which go build
// prints nothing.
package gobuild

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Interval is the time between two lines of progress.
const Interval = 8 * time.Second

// Build is a run of go build for packages of one module.
type Build struct {
	// Directory contains the go.mod.
	Directory string
	// Output is the -o of go build: a directory that exists, for several programs.
	Output   string
	Packages []string
	// Flags are other flags of go build.
	Flags []string
	// Environment is added to that of this process.
	Environment []string
}

// Run builds. It calls progress with a line of text in every Interval; never if the build takes less than one. The error contains the
// output of go build.
func (b Build) Run(ctx context.Context, progress func(line string)) error {
	state := &state{started: time.Now()}
	done := make(chan struct{})
	var reporting sync.WaitGroup
	reporting.Go(func() {
		ticker := time.NewTicker(Interval)
		defer ticker.Stop()
		for {
			select {
			case now := <-ticker.C:
				progress(state.line(now))
			case <-done:
				return
			}
		}
	})
	err := b.run(ctx, state)
	close(done)
	reporting.Wait()
	return err
}

func (b Build) run(ctx context.Context, state *state) error {
	listed, err := b.command(ctx, append([]string{"list", "-deps"}, b.Packages...)).Output()
	if err != nil {
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			return fmt.Errorf("go list in %s: %w\n%s", b.Directory, err, exit.Stderr)
		}
		return fmt.Errorf("go list in %s: %w", b.Directory, err)
	}
	state.begin(strings.Fields(string(listed)), time.Now())
	build := b.command(ctx, append(append([]string{"build", "-v", "-o", b.Output}, b.Flags...), b.Packages...))
	output, err := build.StderrPipe()
	if err != nil {
		return err
	}
	if err := build.Start(); err != nil {
		return err
	}
	var text strings.Builder
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if line := lines.Text(); isPackage(line) {
			state.compiling(line)
		} else {
			fmt.Fprintln(&text, line)
		}
	}
	if err := errors.Join(lines.Err(), build.Wait()); err != nil {
		return fmt.Errorf("go build %s in %s: %w\n%s", strings.Join(b.Packages, " "), b.Directory, err, text.String())
	}
	return nil
}

func (b Build) command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = b.Directory, append(os.Environ(), b.Environment...)
	return cmd
}

// isPackage reports whether a line is output of -v, and not an error or a download.
func isPackage(line string) bool {
	return line != "" && !strings.ContainsAny(line, " \t:#")
}

// state is the progress of a build.
type state struct {
	mu      sync.Mutex
	started time.Time
	began   time.Time // when go build started
	// positions are the positions of all packages, from 1, each after the packages that it imports; nil until go list has ended.
	positions map[string]int
	// reached is the highest position of a package that go build has started to compile. Packages before it are compiled, or cached.
	reached int
	current string
}

func (s *state) begin(packages []string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.positions, s.began = make(map[string]int, len(packages)), now
	for i, pkg := range packages {
		s.positions[pkg] = i + 1
	}
}

func (s *state) compiling(pkg string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reached, s.current = max(s.reached, s.positions[pkg]), pkg
}

// line describes the state. go build does not report which packages are in its cache, so the remaining time is an estimate.
func (s *state) line(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	elapsed, all := now.Sub(s.started).Round(time.Second), len(s.positions)
	switch s.reached {
	case 0:
		if s.positions == nil {
			return fmt.Sprintf("%s: finding the sources of all packages, and downloading what is missing", elapsed)
		}
		return fmt.Sprintf("%s: linking; all %d packages are in the cache", elapsed, all)
	case all:
		return fmt.Sprintf("%s: linking; the last of %d packages is %s", elapsed, all, s.current)
	}
	left := time.Duration(float64(now.Sub(s.began)) / float64(s.reached) * float64(all-s.reached)).Round(time.Second)
	return fmt.Sprintf("%s: package %d of %d, %s; about %s left on %d processors", elapsed, s.reached, all, s.current, left, runtime.NumCPU())
}
