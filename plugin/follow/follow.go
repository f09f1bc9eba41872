// Package follow is how commands follow what shards do: they ask until it is done, print what changes, and bear with servers that do not
// answer for a while. A command that stops following stops nothing else.
package follow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// DefaultInterval is how often the servers are asked.
	DefaultInterval = 500 * time.Millisecond
	// failureTimeout is how long the servers are asked again while they do not answer.
	failureTimeout = time.Minute
)

var (
	// ErrInterrupted means that the user has ended the command.
	ErrInterrupted = errors.New("interrupted")
	// ErrTimeout means that what is followed has not ended in time.
	ErrTimeout = errors.New("timed out")
)

// Step asks once. It returns the line for the user, and whether it is done.
type Step func(ctx context.Context) (line string, done bool, err error)

// Follower follows with the settings of a command.
type Follower struct {
	Out, ErrOut io.Writer
	// Interval is the time between two steps, Timeout the time until ErrTimeout; 0 is without a limit.
	Interval, Timeout time.Duration
	// IsFinal reports whether an error does not go away by itself, besides those that the API says are final.
	IsFinal func(error) bool
}

// ValidateTimeout checks the value of --timeout of a command that follows if the user lets it wait.
func ValidateTimeout(wait bool, timeout time.Duration) error {
	switch {
	case timeout < 0:
		return fmt.Errorf("--timeout must not be negative, got %s", timeout)
	case timeout > 0 && !wait:
		return errors.New("--timeout has no effect with --wait=false")
	}
	return nil
}

// WithInterrupt returns a context that ends when the user presses ctrl-C.
func WithInterrupt(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt)
}

// Until calls step until it is done, and prints each line that differs from the one before. The error is that of step, ErrInterrupted or
// ErrTimeout.
func (f Follower) Until(ctx context.Context, step Step) error {
	waiting, cancel := ctx, context.CancelFunc(func() {})
	if f.Timeout > 0 {
		waiting, cancel = context.WithTimeout(ctx, f.Timeout)
	}
	defer cancel()
	printed, failing := "", time.Time{}
	err := wait.PollUntilContextCancel(waiting, f.Interval, true, func(ctx context.Context) (bool, error) {
		line, done, err := step(ctx)
		switch {
		case ctx.Err() != nil:
			return false, nil
		case err == nil:
			failing = time.Time{}
		case f.isFinal(err):
			return false, err
		case failing.IsZero():
			failing = time.Now()
			fmt.Fprintf(f.ErrOut, "trying again: %v\n", err)
		case time.Since(failing) > failureTimeout:
			return false, err
		}
		if line != "" && line != printed {
			fmt.Fprintln(f.Out, line)
			printed = line
		}
		return done && err == nil, nil
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ErrInterrupted
	case wait.Interrupted(err):
		return ErrTimeout
	}
	return err
}

func (f Follower) isFinal(err error) bool {
	return f.IsFinal != nil && f.IsFinal(err) ||
		apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}
