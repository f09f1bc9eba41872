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

// up starts all servers together: each waits for those it needs.
func (s settings) up(ctx context.Context, out io.Writer) error {
	existing, err := s.readProcesses()
	if err != nil {
		return err
	}
	for _, p := range existing {
		if p.isRunning() {
			return fmt.Errorf("%s runs already (process %d); end it with `make sharded-down`", p.Name, p.PID)
		}
	}
	if err := os.MkdirAll(s.directory, 0o700); err != nil {
		return err
	}
	layout, err := sharded.New(sharded.Options{
		Directory: s.directory, Shards: s.shards, NoCache: s.noCache, FreePorts: s.freePorts, ShardFlags: []string{"--feature-gates=CacheAPIs=true"}, Regions: true,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.startServers(ctx, layout, out); err != nil {
		return errors.Join(err, s.down(io.Discard))
	}
	fmt.Fprint(out, formatLine("\nTry:\n  export KUBECONFIG=%s\n  kubectl get shards\n  kubectl create workspace team --enter\n\nLogs are in %s. End it with `make sharded-down`.", layout.Kubeconfig, s.logDirectory()))
	return nil
}

func (s settings) logDirectory() string { return filepath.Join(s.directory, "logs") }

// startServers runs the servers and waits until all are ready, or one has ended.
func (s settings) startServers(ctx context.Context, layout *sharded.Layout, out io.Writer) error {
	if err := os.MkdirAll(s.logDirectory(), 0o700); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	startTime := time.Now()
	var started []process
	for _, server := range layout.Servers {
		p, err := s.startServer(server, cancel)
		if err != nil {
			return err
		}
		started = append(started, p)
		if err := s.writeProcesses(started); err != nil { // immediately, so that `down` finds the processes even after a failure
			return err
		}
	}
	var wg sync.WaitGroup
	results := make([]error, len(layout.Servers))
	var mu sync.Mutex
	for i, server := range layout.Servers {
		wg.Go(func() {
			if results[i] = layout.WaitReady(ctx, server); results[i] == nil {
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprint(out, formatLine("%-8s %s  ready after %s", server.Name, server.URL, time.Since(startTime).Round(100*time.Millisecond)))
			}
		})
	}
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
		return cause // the end of a server is the reason why the others are not ready
	}
	return errors.Join(results...)
}

// startServer starts one server in its own session, so that it outlives this command and its terminal.
func (s settings) startServer(server sharded.Server, cancel context.CancelCauseFunc) (process, error) {
	program, err := filepath.Abs(filepath.Join(s.binaries, server.Program))
	if err != nil {
		return process{}, err
	}
	file := filepath.Join(s.logDirectory(), server.Name+".log")
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
		cancel(fmt.Errorf("%s has ended (%v); the end of %s:\n%s", server.Name, err, file, tail(file)))
	}()
	return newProcess(server.Name, cmd.Process.Pid)
}

// tail returns the end of a file.
func tail(file string) string {
	const limit = 3000
	content, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-limit):])
}
