package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/atoll-dev/atoll/internal/drain"
	"github.com/atoll-dev/atoll/internal/moves"
	"github.com/atoll-dev/atoll/internal/placementrules"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/follow"
)

const (
	// stepInterval is how often the command reads the migrations.
	stepInterval = time.Second
	// reportTimeout is how long a shard may need to report that nothing is left on it.
	reportTimeout = 20 * time.Second
)

// options are the flags of "kubectl kcp drain".
type options struct {
	wait, stop  bool
	timeout     time.Duration
	concurrency int
}

func (o options) validate() error {
	if o.concurrency < 1 {
		return fmt.Errorf("--max-concurrent must be at least 1, not %d", o.concurrency)
	}
	return follow.ValidateTimeout(o.wait, o.timeout)
}

// drainer is a drain with its output.
type drainer struct {
	options
	drain.Drain
	out, errOut io.Writer
	// counted is when the last line of the search was printed.
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
		Client: moves.Client{Admin: admin, At: installation.Client}, Shard: shard, Concurrency: o.concurrency, Keep: true,
		Inventory: func(ctx context.Context) (moves.Inventory, error) {
			return moves.Walk(ctx, installation.Client, shard, d.printSearch)
		},
	}
	return d, nil
}

func (d *drainer) follower() follow.Follower {
	return follow.Follower{Out: d.out, ErrOut: d.errOut, Interval: stepInterval, Timeout: d.timeout, IsFinal: isFinal}
}

// run moves what can be moved.
func (d *drainer) run(ctx context.Context) error {
	if err := d.Begin(ctx); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "Shard %q is closed for new workspaces. Looking for its workspaces...\n", d.Shard)
	d.counted = time.Now()
	var progress drain.Progress
	err := d.follower().Until(ctx, func(ctx context.Context) (line string, ended bool, err error) {
		latest, err := d.Step(ctx, time.Now())
		if err != nil {
			return "", false, err
		}
		progress = latest
		return progressText(progress), !d.wait || progress.IsIdle(), nil
	})
	switch {
	case errors.Is(err, follow.ErrInterrupted), errors.Is(err, follow.ErrTimeout):
		return fmt.Errorf("%w: %s. Moves that have begun are finished, no others begin, and the shard stays closed. To go on, repeat the command. To give up: kubectl kcp drain %s --stop", err, progress, d.Shard)
	case err != nil:
		return err
	case progress.IsDone():
		return d.conclude(ctx)
	case !d.wait && !progress.IsIdle():
		_, err := fmt.Fprintf(d.out, "Repeat the command to go on.\n")
		return err
	}
	return d.refuse(progress)
}

// conclude deletes the record of the drain. What the search from root has not found, the shard counts.
func (d *drainer) conclude(ctx context.Context) error {
	kept, err := d.CleanUp(ctx)
	if err != nil {
		return err
	}
	if kept > 0 {
		fmt.Fprintf(d.out, "%d LogicalClusterMigrations stay in root, because a shard of the installation does not run. It reads from them where its workspaces are: repeat the command when it runs.\n", kept)
	}
	left := int64(0)
	f := d.follower()
	f.Timeout = reportTimeout
	err = f.Until(ctx, func(ctx context.Context) (string, bool, error) {
		left, err = d.load(ctx)
		return "", left == 0, err
	})
	switch {
	case errors.Is(err, follow.ErrTimeout) && left > 0:
		return fmt.Errorf("no workspace below root is on shard %q, but it counts %d others: home workspaces, those below them, and those that are being deleted. They have no path from root, and home workspaces cannot be moved", d.Shard, left)
	case err != nil:
		return err
	}
	_, err = fmt.Fprintf(d.out, "Shard %q is drained. It stays closed for new workspaces.\n", d.Shard)
	return err
}

// load returns the number of logical clusters that the shard has reported, without those that belong to it. Root is one of them, but counts.
func (d *drainer) load(ctx context.Context) (int64, error) {
	shards, err := d.Shards(ctx)
	if err != nil {
		return 0, err
	}
	for i := range shards {
		if shards[i].Name == d.Shard {
			load := placementrules.Value(shards[i].Status.Load, placementrules.LogicalClusters)
			if d.Shard == rootShard {
				load--
			}
			return max(load, 0), nil
		}
	}
	return 0, nil
}

// rootShard is the name of the shard that has the logical cluster root.
const rootShard = "root"

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

// end stops every drain of the shard.
func (d *drainer) end(ctx context.Context) error {
	running, err := d.Stop(ctx)
	if err != nil {
		return err
	}
	if running.Moving > 0 {
		fmt.Fprintf(d.out, "%d moves end: those that have not taken over are aborted, the others are finished.\n", running.Moving)
	}
	if running.Moving > 0 && d.wait {
		err := d.follower().Until(ctx, func(ctx context.Context) (string, bool, error) {
			running, err = d.AwaitStop(ctx)
			return strings.Join(running.Waiting, "\n"), running.Moving == 0, err
		})
		if errors.Is(err, follow.ErrInterrupted) || errors.Is(err, follow.ErrTimeout) {
			return fmt.Errorf("%w: %d moves have not ended yet, the shards go on. To follow, repeat the command", err, running.Moving)
		}
		if err != nil {
			return err
		}
	}
	state := "stopped"
	if running.Moving > 0 {
		state = "being stopped"
	}
	_, err = fmt.Fprintf(d.out, "The drain of shard %q is %s. The shard stays closed for new workspaces: \"kubectl kcp uncordon %s\" opens it.\n", d.Shard, state, d.Shard)
	return err
}

// isFinal reports whether an error does not go away by itself.
func isFinal(err error) bool {
	return errors.Is(err, drain.ErrStopped) || errors.Is(err, drain.ErrContinued) || errors.Is(err, moves.ErrFeatureDisabled)
}

// printSearch prints how many workspaces have been read, once in a while.
func (d *drainer) printSearch(read int) {
	if time.Since(d.counted) < stepInterval {
		return
	}
	d.counted = time.Now()
	fmt.Fprintf(d.out, "Workspaces of the installation that have been read: %d.\n", read)
}

// progressText returns the numbers, and what holds up moves.
func progressText(progress drain.Progress) string {
	line := progress.String()
	for _, waiting := range progress.Waiting {
		line += "\n  waits: " + waiting
	}
	for _, failed := range progress.Failed {
		line += fmt.Sprintf("\n  %s: attempt %d: %s", failed.LogicalCluster, failed.Attempts, failed.Reason)
	}
	return line
}
