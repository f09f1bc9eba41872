package backup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/follow"
)

// waitOptions are the flags of commands that can wait.
type waitOptions struct {
	wait    bool
	timeout time.Duration
}

func (o *waitOptions) bind(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.wait, "wait", false, "Wait until it has ended, and show its progress")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "How long to wait. The operator goes on afterwards. 0 is without a limit")
}

// followed is an object whose end a command waits for.
type followed struct {
	kind, name string
	uid        types.UID
}

// until prints the state of an object whenever that changes, until the phase is the first of the two, which is success, or the second.
func until[T any](ctx context.Context, flags *connection.Flags, o waitOptions, resource dynamic.ResourceInterface, object followed, completed, failed string,
	state func(*T) (uid types.UID, phase string, conditions []metav1.Condition),
) error {
	line, last := "", ""
	follower := follow.Follower{Out: flags.Out, ErrOut: flags.ErrOut, Interval: follow.DefaultInterval, Timeout: o.timeout}
	err := follower.Until(ctx, func(ctx context.Context) (string, bool, error) {
		current, err := get[T](ctx, resource, object.name)
		if err != nil {
			return "", false, fmt.Errorf("reading %s %q: %w", object.kind, object.name, err)
		}
		uid, phase, conditions := state(current)
		if uid != object.uid {
			return "", true, nil
		}
		line, last = stateOf(phase, conditions), phase
		return line, phase == completed || phase == failed, nil
	})
	switch {
	case errors.Is(err, follow.ErrInterrupted):
		return fmt.Errorf("stopped waiting, the operator goes on with %s %q", object.kind, object.name)
	case errors.Is(err, follow.ErrTimeout):
		return fmt.Errorf("%s %q has not ended after %s, the operator goes on: %s", object.kind, object.name, o.timeout, line)
	case err != nil:
		return err
	case last == completed:
		return nil
	case last == failed:
		return fmt.Errorf("%s %q has ended as %s", object.kind, object.name, line)
	}
	return fmt.Errorf("%s %q was deleted by somebody else, and another one has its name", object.kind, object.name)
}
