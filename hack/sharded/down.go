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

// process is a started process. Started distinguishes it from a later process with the same pid.
type process struct {
	Name    string `json:"name"`
	PID     int    `json:"pid"`
	Started string `json:"started"`
}

// gracePeriod is how long servers may take to end before they are killed.
const gracePeriod = 30 * time.Second

func newProcess(name string, pid int) (process, error) {
	started, err := processStartTime(pid)
	if err != nil {
		return process{}, fmt.Errorf("%s has ended at once: %w", name, err)
	}
	return process{Name: name, PID: pid, Started: started}, nil
}

// processStartTime returns the start time of a process, in the format of ps.
func processStartTime(pid int) (string, error) {
	output, err := exec.Command("ps", "-o", "stat=,lstart=", "-p", strconv.Itoa(pid)).Output()
	status, started, _ := strings.Cut(strings.TrimSpace(string(output)), " ")
	if err != nil || strings.HasPrefix(status, "Z") {
		return "", fmt.Errorf("no process %d", pid)
	}
	return strings.TrimSpace(started), nil
}

// isRunning reports whether the process still exists.
func (p process) isRunning() bool {
	started, err := processStartTime(p.PID)
	return err == nil && started == p.Started
}

func (s settings) processesFile() string { return filepath.Join(s.directory, "processes.json") }

func (s settings) readProcesses() ([]process, error) {
	content, err := os.ReadFile(s.processesFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []process
	if err := json.Unmarshal(content, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", s.processesFile(), err)
	}
	return all, nil
}

func (s settings) writeProcesses(all []process) error {
	content, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(s.processesFile(), content, 0o600)
}

// down stops the recorded processes: those that depend on others first, so that none logs that another is missing.
func (s settings) down(out io.Writer) error {
	all, err := s.readProcesses()
	if err != nil {
		return err
	}
	for i := len(all) - 1; i >= 0; i-- {
		p := all[i]
		if !p.isRunning() {
			continue
		}
		if err := p.stop(); err != nil {
			return err
		}
		fmt.Fprint(out, formatLine("%-8s has ended", p.Name))
	}
	if err := os.Remove(s.processesFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (p process) stop() error {
	if err := syscall.Kill(p.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("ending %s: %w", p.Name, err)
	}
	for deadline := time.Now().Add(gracePeriod); p.isRunning(); {
		if time.Now().After(deadline) {
			return syscall.Kill(p.PID, syscall.SIGKILL)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}
