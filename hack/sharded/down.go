package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is one that was started. Started distinguishes it from a later process with the same pid.
type process struct {
	Name    string `json:"name"`
	PID     int    `json:"pid"`
	Started string `json:"started"`
}

// graceful is how long servers may take to end before they are killed.
const graceful = 30 * time.Second

func identify(name string, pid int) (process, error) {
	started, err := startedAt(pid)
	if err != nil {
		return process{}, fmt.Errorf("%s has ended at once: %w", name, err)
	}
	return process{Name: name, PID: pid, Started: started}, nil
}

// startedAt returns the start time of a process, in the format of ps.
func startedAt(pid int) (string, error) {
	output, err := exec.Command("ps", "-o", "stat=,lstart=", "-p", strconv.Itoa(pid)).Output()
	status, started, _ := strings.Cut(strings.TrimSpace(string(output)), " ")
	if err != nil || strings.HasPrefix(status, "Z") {
		return "", fmt.Errorf("no process %d", pid)
	}
	return strings.TrimSpace(started), nil
}

// runs reports whether the process still exists.
func (p process) runs() bool {
	started, err := startedAt(p.PID)
	return err == nil && started == p.Started
}

func (s settings) file() string { return filepath.Join(s.directory, "processes.json") }

func (s settings) recorded() ([]process, error) {
	content, err := os.ReadFile(s.file())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []process
	if err := json.Unmarshal(content, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", s.file(), err)
	}
	return all, nil
}

func (s settings) record(all []process) error {
	content, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(s.file(), content, 0o600)
}

// down stops the recorded processes: those that depend on others first, so that none logs that another is missing.
func (s settings) down(out io.Writer) error {
	all, err := s.recorded()
	if err != nil {
		return err
	}
	for i := len(all) - 1; i >= 0; i-- {
		p := all[i]
		if !p.runs() {
			continue
		}
		if err := p.end(); err != nil {
			return err
		}
		fmt.Fprint(out, say("%-8s has ended", p.Name))
	}
	if err := os.Remove(s.file()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (p process) end() error {
	if err := syscall.Kill(p.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("ending %s: %w", p.Name, err)
	}
	for deadline := time.Now().Add(graceful); p.runs(); {
		if time.Now().After(deadline) {
			return syscall.Kill(p.PID, syscall.SIGKILL)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}
