package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/atoll-dev/atoll/test/sharded"
)

// up starts all servers at once: each waits for those it needs.
func (s settings) up(ctx context.Context, out io.Writer) error {
	recorded, err := s.recorded()
	if err != nil {
		return err
	}
	for _, p := range recorded {
		if p.runs() {
			return fmt.Errorf("%s runs already (process %d); end it with `make sharded-down`", p.Name, p.PID)
		}
	}
	if err := os.MkdirAll(s.directory, 0o700); err != nil {
		return err
	}
	layout, err := sharded.New(sharded.Options{Directory: s.directory, Shards: s.shards, NoCache: s.noCache})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.start(ctx, layout, out); err != nil {
		return errors.Join(err, s.down(io.Discard))
	}
	if err := layout.LabelShards(ctx); err != nil {
		return errors.Join(err, s.down(io.Discard))
	}
	fmt.Fprint(out, say("\nTry:\n  export KUBECONFIG=%s\n  kubectl get shards\n  kubectl create workspace team --enter\n\nLogs are in %s. End it with `make sharded-down`.", layout.Kubeconfig, s.logs()))
	return nil
}

func (s settings) logs() string { return filepath.Join(s.directory, "logs") }

// start runs the servers and waits until all are ready, or one has ended.
func (s settings) start(ctx context.Context, layout *sharded.Layout, out io.Writer) error {
	if err := os.MkdirAll(s.logs(), 0o700); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	begun := time.Now()
	var started []process
	for _, server := range layout.Servers {
		p, err := s.run(server, cancel)
		if err != nil {
			return err
		}
		started = append(started, p)
		if err := s.record(started); err != nil { // at once, so that `down` finds the processes whatever happens next
			return err
		}
	}
	var waiting sync.WaitGroup
	results := make([]error, len(layout.Servers))
	var lines sync.Mutex
	for i, server := range layout.Servers {
		waiting.Go(func() {
			if results[i] = layout.WaitReady(ctx, server); results[i] == nil {
				lines.Lock()
				defer lines.Unlock()
				fmt.Fprint(out, say("%-8s %s  ready after %s", server.Name, server.URL, time.Since(begun).Round(100*time.Millisecond)))
			}
		})
	}
	waiting.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
		return cause // the end of a server is the reason why the others are not ready
	}
	return errors.Join(results...)
}

// run starts one server in a session of its own, so that it outlives this command and its terminal.
func (s settings) run(server sharded.Server, failed context.CancelCauseFunc) (process, error) {
	program, err := filepath.Abs(filepath.Join(s.binaries, server.Program))
	if err != nil {
		return process{}, err
	}
	file := filepath.Join(s.logs(), server.Name+".log")
	log, err := os.Create(file)
	if err != nil {
		return process{}, err
	}
	defer log.Close() // the server has its own descriptor
	cmd := exec.Command(program, server.Args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.directory, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return process{}, fmt.Errorf("starting %s: %w", server.Name, err)
	}
	go func() {
		err := cmd.Wait()
		failed(fmt.Errorf("%s has ended (%v); the end of %s:\n%s", server.Name, err, file, tail(file)))
	}()
	return identify(server.Name, cmd.Process.Pid)
}

// tail returns the end of a file.
func tail(file string) string {
	const enough = 3000
	content, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-enough):])
}
