// Command skew runs a program whose wall clock differs from everybody else's:
//
//	skew SHIFT PROGRAM [ARGUMENT...]
//
// SHIFT is a duration in whole seconds, as 10m or -10m. The program is killed when skew is, gets the signals TERM and INT
// that skew gets, and skew exits with its code. At the signal USR1 the clock is set right, while the program runs.
//
// Kernels have no clock of the day per process; time namespaces shift the others. Programs ask for it in a few
// instructions that the kernel maps into every process, its vDSO, which a tracer may overwrite. So the program is traced
// until it has begun, gets its own instructions there, and runs on by itself at full speed. This works for a program in
// Go, which asks for the time of the day in no other way; C libraries have more functions for it. Timestamps that the
// kernel makes, those of files, are not shifted, nor are monotonic clocks: timers last as long as they shall.
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

// failed is the exit code when the program could not be run, as that of env and nice is.
const failed = 125

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "skew:", err)
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	if len(args) < 2 {
		return failed, errors.New("usage: skew SHIFT PROGRAM [ARGUMENT...]")
	}
	shift, err := time.ParseDuration(args[0])
	if err != nil || shift%time.Second != 0 {
		return failed, fmt.Errorf("%q is no duration in whole seconds", args[0])
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1)
	// Who starts the program traces it, and takes it along at its end: to the kernel that is a thread.
	runtime.LockOSThread()
	program, clock, err := start(args[1], args[2:], shift)
	if err != nil {
		return failed, fmt.Errorf("running %s by another clock: %w", args[1], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	for {
		select {
		case err := <-ended:
			return program.ProcessState.ExitCode(), ignoreExit(err)
		case signal := <-signals:
			if signal == syscall.SIGUSR1 {
				err = clock.set(0)
			} else {
				err = program.Process.Signal(signal)
			}
			if err != nil && !errors.Is(err, os.ErrProcessDone) {
				return failed, fmt.Errorf("at signal %s: %w", signal, err)
			}
		}
	}
}

func ignoreExit(err error) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil // the code says it
	}
	return err
}
