package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is one program of the cluster. It runs in its own session, so that it outlives the terminal, and its pid file identifies it by
// pid and start time, because pids are reused.
type process struct {
	name string
	path string
	args []string
	env  []string // in addition to PATH and HOME
}

// start starts the process unless its pid file names one that runs. It reports whether it started one.
func (l Layout) start(p process) (bool, error) {
	if _, alive := l.runningPID(p.name); alive {
		return false, nil
	}
	for _, dir := range []string{l.path("run"), l.Logs()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return false, err
		}
	}
	log, err := os.OpenFile(l.log(p.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return false, err
	}
	defer log.Close()
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir = l.State
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + l.State}, p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("starting %s: %w", p.name, err)
	}
	go cmd.Wait() //nolint:errcheck // reaps the process; runningPID determines whether it runs
	started, err := processStartTime(cmd.Process.Pid)
	if err != nil {
		return true, fmt.Errorf("starting %s: it ended at once: %s", p.name, l.logTail(p.name))
	}
	return true, os.WriteFile(l.pid(p.name), fmt.Appendf(nil, "%d %s\n", cmd.Process.Pid, started), 0o644)
}

// runningPID returns the pid of a process of the cluster that runs.
func (l Layout) runningPID(name string) (int, bool) {
	content, err := os.ReadFile(l.pid(name))
	if err != nil {
		return 0, false
	}
	pidText, started, _ := strings.Cut(strings.TrimSpace(string(content)), " ")
	pid, err := strconv.Atoi(pidText)
	if err != nil {
		return 0, false
	}
	now, err := processStartTime(pid)
	return pid, err == nil && now == started
}

// stop stops a process of the cluster and waits for its end, with SIGTERM first, then SIGKILL.
func (l Layout) stop(name string) error {
	for _, attempt := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGTERM, 5 * time.Second}, {syscall.SIGKILL, 5 * time.Second}} {
		pid, alive := l.runningPID(name)
		if !alive {
			break
		}
		if err := syscall.Kill(pid, attempt.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("ending %s (pid %d): %w", name, pid, err)
		}
		poll(context.Background(), attempt.wait, 20*time.Millisecond, func() error { //nolint:errcheck // the next attempt checks again
			if _, alive := l.runningPID(name); alive {
				return errors.New("still running")
			}
			return nil
		})
	}
	if pid, alive := l.runningPID(name); alive {
		return fmt.Errorf("ending %s (pid %d): it does not end", name, pid)
	}
	if err := os.Remove(l.pid(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// logTail returns the end of a process's output.
func (l Layout) logTail(name string) string {
	content, err := os.ReadFile(l.log(name))
	if err != nil {
		return err.Error()
	}
	if len(content) > 2000 {
		content = content[len(content)-2000:]
	}
	return fmt.Sprintf("%s (its output is in %s)", bytes.TrimSpace(content), l.log(name))
}

// processStartTime returns field 22 of /proc/<pid>/stat, in clock ticks since boot. A zombie counts as ended.
func processStartTime(pid int) (string, error) {
	stat, err := readStat(pid)
	if err != nil {
		return "", err
	}
	if stat.state == "Z" || stat.state == "X" {
		return "", fmt.Errorf("process %d has ended", pid)
	}
	return stat.started, nil
}

type stat struct {
	state, started string
	parent         int
}

func readStat(pid int) (stat, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parseStat(string(content))
}

// parseStat parses a line of /proc/<pid>/stat. The program's name, in parentheses, may contain blanks and parentheses.
func parseStat(line string) (stat, error) {
	_, rest, ok := cutLast(line, ")")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return stat{}, fmt.Errorf("unexpected line of a stat file: %q", line)
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return stat{}, fmt.Errorf("unexpected line of a stat file: %q", line)
	}
	return stat{state: fields[0], parent: parent, started: fields[19]}, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// listShims returns the pids of the shims of the cluster's containerd, identified by the socket in their command lines.
func (l Layout) listShims() ([]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // it ended in the meantime
		}
		if isShim(strings.Split(string(content), "\x00"), l.containerdSocket()) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil {
				return nil, err
			}
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func isShim(args []string, socket string) bool {
	if len(args) == 0 || filepath.Base(args[0]) != "containerd-shim-runc-v2" {
		return false
	}
	for i := range len(args) - 1 {
		if args[i] == "-address" && args[i+1] == socket {
			return true
		}
	}
	return false
}

// killContainers kills every shim of the cluster and the processes below it. A container's first process is a child of
// its shim, and its end kills the whole pid namespace.
func (l Layout) killContainers() error {
	return poll(context.Background(), 10*time.Second, 50*time.Millisecond, func() error {
		shims, err := l.listShims()
		if err != nil {
			return err
		}
		if len(shims) == 0 {
			return nil
		}
		parents := map[int]int{}
		files, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, file := range files {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if s, err := readStat(pid); err == nil {
				parents[pid] = s.parent
			}
		}
		for _, pid := range append(descendants(parents, shims), shims...) {
			syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // ended already, or found again by the next iteration
		}
		return fmt.Errorf("%d containers still run", len(shims))
	})
}

// descendants returns all processes below the given ones, children before grandchildren.
func descendants(parents map[int]int, roots []int) []int {
	children := map[int][]int{}
	for pid, parent := range parents {
		children[parent] = append(children[parent], pid)
	}
	var found []int
	for queue := roots; len(queue) > 0; queue = queue[1:] {
		found = append(found, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return found
}

// poll calls done until it succeeds, and returns its last error at the timeout.
func poll(ctx context.Context, timeout, interval time.Duration, condition func() error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up after %s: %w", timeout, err)
		case <-tick.C:
		}
	}
}

// runCommand runs a program to its end and returns its output, which is also part of the error.
func runCommand(ctx context.Context, stdin string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return string(out), nil
}
