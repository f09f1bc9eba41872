// Command skew runs a program with a shifted wall clock:
//
//	skew SHIFT PROGRAM [ARGUMENT...]
//
// SHIFT is a duration in whole seconds, as 10m or -10m. The program is killed when skew is, receives the signals TERM
// and INT that skew receives, and skew exits with its code. While the program runs, the signal USR1 removes the shift, and
// USR2 restores it.
//
// Kernels have no wall clock per process; time namespaces shift only the other clocks. Programs read it with a few
// instructions that the kernel maps into every process, its vDSO, which a tracer may overwrite. So skew traces the
// program until it has started, replaces these instructions, and detaches, so that it runs at full speed. This works
// for programs in Go, which read the wall clock in no other way; C libraries use more functions. Timestamps of the
// kernel, such as those of files, are not shifted, nor are monotonic clocks: timers keep their durations.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// exitCodeFailed is the exit code when the program could not be run; env and nice use the same code.
const exitCodeFailed = 125

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "skew:", err)
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	if len(args) < 2 {
		return exitCodeFailed, errors.New("usage: skew SHIFT PROGRAM [ARGUMENT...]")
	}
	shift, err := time.ParseDuration(args[0])
	if err != nil || shift%time.Second != 0 {
		return exitCodeFailed, fmt.Errorf("%q is no duration in whole seconds", args[0])
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1, syscall.SIGUSR2)
	// The thread that starts the program traces it, and the program ends with that thread.
	runtime.LockOSThread()
	program, clock, err := start(args[1], args[2:], shift)
	if err != nil {
		return exitCodeFailed, fmt.Errorf("running %s with a shifted clock: %w", args[1], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	for {
		select {
		case err := <-ended:
			return program.ProcessState.ExitCode(), ignoreExit(err)
		case signal := <-signals:
			switch signal {
			case syscall.SIGUSR1:
				err = clock.set(0)
			case syscall.SIGUSR2:
				err = clock.set(shift)
			default:
				err = program.Process.Signal(signal)
			}
			if err != nil && !errors.Is(err, os.ErrProcessDone) {
				return exitCodeFailed, fmt.Errorf("at signal %s: %w", signal, err)
			}
		}
	}
}

func ignoreExit(err error) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil // the exit code suffices
	}
	return err
}
