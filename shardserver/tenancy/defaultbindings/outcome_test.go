package defaultbindings

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
)

// TestOutcome checks that permanent errors are reported in conditions, and that transient ones are retried.
func TestOutcome(t *testing.T) {
	w := defaultBinding{name: "x-abcde", reference: apiindex.Reference{Path: logicalcluster.Root.Path(), Name: "x"}}
	for name, tc := range map[string]struct {
		err                       error
		missing, refused, waiting int
		again                     bool
	}{
		"created, and not complete": {nil, 0, 0, 1, false},
		"no export":                 {errMissing, 1, 0, 0, false},
		"denied by admission":       {fmt.Errorf("creating: %w", apierrors.NewForbidden(bindings, "x-abcde", errors.New("policy"))), 0, 1, 0, false},
		"rejected by validation":    {fmt.Errorf("creating: %w", apierrors.NewInvalid(schema.GroupKind{Kind: "APIBinding"}, "x-abcde", nil)), 0, 1, 0, false},
		"the server is busy":        {apierrors.NewTooManyRequests("later", 1), 0, 0, 0, true},
		"a concurrent update":       {apierrors.NewConflict(bindings, "x-abcde", errors.New("changed")), 0, 0, 0, true},
		"an etcd timeout":           {apierrors.NewTimeoutError("etcd", 1), 0, 0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			var outcome Outcome
			err := outcome.record(w, nil, tc.err)
			if (err != nil) != tc.again || len(outcome.Missing) != tc.missing || len(outcome.Refused) != tc.refused || len(outcome.Waiting) != tc.waiting {
				t.Errorf("got %+v, %v", outcome, err)
			}
			if problems := tc.missing+tc.refused > 0; (outcome.Problems() != nil) != problems {
				t.Errorf("problems are %v", outcome.Problems())
			}
			if outcome.Done() != tc.again {
				t.Errorf("done: %t", outcome.Done())
			}
		})
	}
}
