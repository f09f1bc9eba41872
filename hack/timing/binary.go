package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// runBinary runs a test binary like go test, and records its cost under the directory of its package, which is the working directory.
func runBinary(notes notes, args []string) error {
	directory, err := os.Getwd()
	if err != nil {
		return err
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT) // go test sends the last one to a binary that exceeds its time
	defer signal.Stop(signals)
	started := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		for received := range signals {
			_ = cmd.Process.Signal(received)
		}
	}()
	runErr := cmd.Wait()
	signal.Stop(signals)
	close(signals)
	state := cmd.ProcessState
	return errors.Join(runErr, notes.add(note{
		kind: kindPackage, name: packageName(os.Getenv(rootVariable), directory), wall: time.Since(started), processor: state.UserTime() + state.SystemTime(),
	}))
}

// rootVariable names the variable with the directory to which names of packages are relative.
const rootVariable = "ATOLL_TIMING_ROOT"

// packageName returns the name of a package in the tables.
func packageName(root, directory string) string {
	name, err := filepath.Rel(root, directory)
	if root == "" || err != nil {
		return directory
	}
	return name
}
