package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/atoll-dev/atoll/internal/drain"
	"github.com/atoll-dev/atoll/plugin/connection"
)

const (
	// stepInterval is how often the command looks at the migrations.
	stepInterval = time.Second
	// failureTimeout is how long the command tries again while the servers do not answer.
	failureTimeout = time.Minute
	// maxAttempts is how often the command moves a workspace whose moves fail before it gives up.
	maxAttempts = 3
)

// options are the flags of "kubectl kcp drain".
type options struct {
	wait, stop  bool
	concurrency int
}

func (o options) validate() error {
	if o.concurrency < 1 {
		return fmt.Errorf("--max-concurrent must be at least 1, not %d", o.concurrency)
	}
	return nil
}

// drainer is a drain with its output.
type drainer struct {
	options
	drain.Drain
	out, errOut io.Writer
	// last is the last line of progress, and counted when the last one of the search was printed.
	last    string
	counted time.Time
}

func newDrainer(flags *connection.Flags, shard string, o options) (*drainer, error) {
	installation, err := open(flags)
	if err != nil {
		return nil, err
	}
	admin, err := installation.AdminClient()
	if err != nil {
		return nil, err
	}
	d := &drainer{options: o, out: flags.Out, errOut: flags.ErrOut}
	d.Drain = drain.Drain{
		Shard: shard, Concurrency: o.concurrency, Admin: admin, At: installation.Client, Keep: true,
		Inventory: func(ctx context.Context) (drain.Inventory, error) {
			return drain.Walk(ctx, installation.Client, shard, d.printSearch)
		},
	}
	return d, nil
}

// run moves what can be moved.
func (d *drainer) run(ctx context.Context) error {
	if err := d.Begin(ctx); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "Shard %q is closed for new workspaces. Looking for its workspaces...\n", d.Shard)
	d.counted = time.Now()
	var progress drain.Progress
	err := d.poll(ctx, func(ctx context.Context) (ended bool, err error) {
		if progress, err = d.Step(ctx, time.Now()); err != nil {
			return false, err
		}
		d.print(progress)
		return !d.wait || hasEnded(progress), nil
	})
	switch {
	case err != nil:
		return err
	case progress.IsDone():
		if err := d.CleanUp(ctx); err != nil {
			return err
		}
		_, err := fmt.Fprintf(d.out, "Shard %q is drained: no workspace below root is on it. It stays closed for new workspaces.\n", d.Shard)
		return err
	case !d.wait && !progress.IsIdle():
		_, err := fmt.Fprintf(d.out, "Repeat the command to go on.\n")
		return err
	}
	return d.refuse(progress)
}

// hasEnded reports whether waiting changes nothing.
func hasEnded(progress drain.Progress) bool {
	if progress.Moving > 0 || len(progress.Waiting) > 0 {
		return false
	}
	for _, failed := range progress.Failed {
		if failed.Attempts < maxAttempts {
			return false
		}
	}
	return true
}

// refuse lists what stays on the shard, and returns an error.
func (d *drainer) refuse(progress drain.Progress) error {
	for _, refused := range progress.Refused {
		fmt.Fprintf(d.errOut, "%s stays: %s\n", refused.LogicalCluster, refused.Reason)
	}
	for _, failed := range progress.Failed {
		fmt.Fprintf(d.errOut, "%s stays: after %d attempts, %s\n", failed.LogicalCluster, failed.Attempts, failed.Reason)
	}
	for _, unread := range progress.Unread {
		fmt.Fprintf(d.errOut, "not read: %s\n", unread)
	}
	return fmt.Errorf("shard %q is not drained: %d of %d workspaces have moved; repeat the command when the reasons are gone", d.Shard, progress.Moved, progress.Total())
}

// stop ends every drain of the shard.
func (d *drainer) stop(ctx context.Context) error {
	first := true
	err := d.poll(ctx, func(ctx context.Context) (bool, error) {
		running, err := d.Stop(ctx)
		if err != nil {
			return false, err
		}
		if first && running > 0 {
			fmt.Fprintf(d.out, "%d moves end: those that have not taken over are aborted, the others are finished.\n", running)
		}
		first = false
		return !d.wait || running == 0, nil
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(d.out, "The drain of shard %q is stopped. The shard stays closed for new workspaces: \"kubectl kcp uncordon %s\" opens it.\n", d.Shard, d.Shard)
	return err
}

// poll calls step until it is done. Servers that do not answer are asked again for a limited time.
func (d *drainer) poll(ctx context.Context, step wait.ConditionWithContextFunc) error {
	failing := time.Time{}
	return wait.PollUntilContextCancel(ctx, stepInterval, true, func(ctx context.Context) (bool, error) {
		done, err := step(ctx)
		switch {
		case err == nil:
			failing = time.Time{}
			return done, nil
		case isFinal(err):
			return false, err
		case failing.IsZero():
			failing = time.Now()
			fmt.Fprintf(d.errOut, "trying again: %v\n", err)
		case time.Since(failing) > failureTimeout:
			return false, err
		}
		return false, nil
	})
}

// isFinal reports whether an error does not go away by itself.
func isFinal(err error) bool {
	return errors.Is(err, drain.ErrStopped) || errors.Is(err, drain.ErrFeatureDisabled) || errors.Is(err, context.Canceled) ||
		apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err)
}

// printSearch prints how many workspaces have been read, once in a while.
func (d *drainer) printSearch(read int) {
	if time.Since(d.counted) < stepInterval {
		return
	}
	d.counted = time.Now()
	fmt.Fprintf(d.out, "Workspaces of the installation that have been read: %d.\n", read)
}

// print prints a line of progress if it has changed.
func (d *drainer) print(progress drain.Progress) {
	line := progress.String()
	for _, waiting := range progress.Waiting {
		line += "\n  waits: " + waiting
	}
	for _, failed := range progress.Failed {
		line += fmt.Sprintf("\n  %s: attempt %d: %s", failed.LogicalCluster, failed.Attempts, failed.Reason)
	}
	if line == d.last {
		return
	}
	d.last = line
	fmt.Fprintln(d.out, line)
}
