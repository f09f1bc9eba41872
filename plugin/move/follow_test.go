package move

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// TestConclude covers ends of a move that are hard to provoke on a server.
func TestConclude(t *testing.T) {
	path, err := logicalcluster.ParsePath("root:org:team")
	if err != nil {
		t.Fatal(err)
	}
	isTrue := func(condition conditionsv1alpha1.Type) func(*migrationv1alpha1.LogicalClusterMigration) {
		return func(m *migrationv1alpha1.LogicalClusterMigration) { conditionsv1alpha1.MarkTrue(m, condition) }
	}
	isFalse := func(condition conditionsv1alpha1.Type) func(*migrationv1alpha1.LogicalClusterMigration) {
		return func(m *migrationv1alpha1.LogicalClusterMigration) {
			conditionsv1alpha1.MarkFalse(m, condition, "Reason", conditionsv1alpha1.SeverityError, "the message")
		}
	}
	type changes = []func(*migrationv1alpha1.LogicalClusterMigration)
	for name, tc := range map[string]struct {
		abort   bool
		phase   migrationv1alpha1.LogicalClusterMigrationPhaseType
		changes changes
		shard   string // that has the workspace, when the migration does not exist
		out     string
		err     string
	}{
		"moved":                                {phase: migrationv1alpha1.LogicalClusterMigrationPhaseCompleted, out: `Workspace "root:org:team" is on shard "beta".`},
		"failed":                               {phase: migrationv1alpha1.LogicalClusterMigrationPhaseFailed, changes: changes{isFalse(migrationv1alpha1.OriginReady)}, err: "has failed: the message (Reason); kubectl get logicalclustermigration team-1"},
		"failed without a reason":              {phase: migrationv1alpha1.LogicalClusterMigrationPhaseFailed, err: "was not moved"},
		"given up by somebody else":            {phase: migrationv1alpha1.LogicalClusterMigrationPhaseFailed, changes: changes{isTrue(migrationv1alpha1.Aborted)}, err: "somebody has given up the move"},
		"deleted by somebody else":             {phase: migrationv1alpha1.LogicalClusterMigrationPhaseMigrating, err: `LogicalClusterMigration "team-1" was deleted by somebody else`},
		"moved, and the migration deleted":     {phase: migrationv1alpha1.LogicalClusterMigrationPhaseMigrating, shard: "beta", out: `Workspace "root:org:team" is on shard "beta".`},
		"not moved, and the migration deleted": {phase: migrationv1alpha1.LogicalClusterMigrationPhaseMigrating, shard: "alpha", err: `was deleted by somebody else`},
		"given up when nobody looked":          {abort: true, phase: migrationv1alpha1.LogicalClusterMigrationPhaseMigrating, shard: "beta", err: "it was too late"},
		"given up":                             {abort: true, phase: migrationv1alpha1.LogicalClusterMigrationPhaseAborting, out: "The move is given up."},
		"given up too late":                    {abort: true, phase: migrationv1alpha1.LogicalClusterMigrationPhaseOriginCleanup, changes: changes{isTrue(migrationv1alpha1.DataCopied)}, err: "it was too late to give up: shard beta had taken over"},
		"given up while children move":         {abort: true, phase: migrationv1alpha1.LogicalClusterMigrationPhaseFailed, changes: changes{isTrue(migrationv1alpha1.DataCopied), isFalse(migrationv1alpha1.ChildrenMoved)}, err: "its other children stay where they are: the message"},
		"completed before it was given up":     {abort: true, phase: migrationv1alpha1.LogicalClusterMigrationPhaseCompleted, changes: changes{isTrue(migrationv1alpha1.DataCopied)}, err: "it was too late"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			m := &mover{IOStreams: genericiooptions.IOStreams{Out: &out}, path: path, options: options{abort: tc.abort, to: "beta"}}
			last := &migrationv1alpha1.LogicalClusterMigration{Spec: migrationv1alpha1.LogicalClusterMigrationSpec{DestinationShard: "beta"}}
			last.Name, last.Status.Phase = "team-1", tc.phase
			for _, change := range tc.changes {
				change(last)
			}
			conclude := m.concludeMove
			if tc.abort {
				conclude = m.concludeAbort
			}
			err := conclude(last, tc.shard)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) || !strings.Contains(out.String(), tc.out) {
				t.Errorf("got %v and %q", err, out.String())
			}
		})
	}
}
