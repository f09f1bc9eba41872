package follow

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestUntil(t *testing.T) {
	broken, final := errors.New("connection refused"), errors.New("final")
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no"))
	type answer struct {
		line string
		done bool
		err  error
	}
	for name, tc := range map[string]struct {
		answers []answer // the last one is repeated
		timeout time.Duration
		stop    bool // at the last answer
		out     string
		errOut  string
		err     error
	}{
		"lines are printed once":               {answers: []answer{{line: "1"}, {line: "1"}, {line: "2", done: true}}, out: "1\n2\n"},
		"an error that goes away":              {answers: []answer{{line: "1"}, {err: broken}, {err: broken}, {line: "2", done: true}}, out: "1\n2\n", errOut: "trying again: connection refused\n"},
		"an error that the command knows":      {answers: []answer{{err: final}}, err: final},
		"an error that the API says is final":  {answers: []answer{{err: forbidden}}, err: forbidden},
		"it does not end in time":              {answers: []answer{{line: "1"}}, timeout: 20 * time.Millisecond, out: "1\n", err: ErrTimeout},
		"the user ends it":                     {answers: []answer{{line: "1"}, {}}, stop: true, out: "1\n", err: ErrInterrupted},
		"the last error is not a late success": {answers: []answer{{done: true, err: final}}, err: final},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f := Follower{Out: &out, ErrOut: &errOut, Interval: time.Millisecond, Timeout: tc.timeout, IsFinal: func(err error) bool { return errors.Is(err, final) }}
			err := f.Until(ctx, func(context.Context) (string, bool, error) {
				current := tc.answers[0]
				if len(tc.answers) > 1 {
					tc.answers = tc.answers[1:]
				} else if tc.stop {
					cancel()
				}
				return current.line, current.done, current.err
			})
			if !errors.Is(err, tc.err) || out.String() != tc.out || errOut.String() != tc.errOut {
				t.Errorf("got %v, %q, %q", err, out.String(), errOut.String())
			}
		})
	}
}
