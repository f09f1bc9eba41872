package move

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/internal/moves"
	"github.com/atoll-dev/atoll/plugin/follow"
)

// follow prints the progress of a migration whenever it changes, until it has ended or does not exist. The error says what
// happened instead of what the user has asked for.
func (m *mover) follow(ctx context.Context, migration *migrationv1alpha1.LogicalClusterMigration) error {
	shard := "" // of the logical cluster, once the migration does not exist
	follower := follow.Follower{Out: m.Out, ErrOut: m.ErrOut, Interval: follow.DefaultInterval, Timeout: m.timeout}
	err := follower.Until(ctx, func(ctx context.Context) (string, bool, error) {
		object, err := m.client.Get(ctx, migration.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && object.GetUID() != migration.UID:
			// Drains delete migrations that have ended: what was seen of this one may be old.
			shard, err = m.shard(ctx)
			return "", true, err
		case err != nil:
			return "", false, explain(err, "reading")
		}
		if migration, err = moves.Decode(object); err != nil {
			return "", false, err
		}
		return progress(migration), !moves.IsRunning(migration), nil
	})
	switch {
	case errors.Is(err, follow.ErrInterrupted):
		return fmt.Errorf("stopped waiting, the shards go on. %s", m.advice())
	case errors.Is(err, follow.ErrTimeout):
		return fmt.Errorf("the move has not ended after %s, the shards go on: %s. %s", m.timeout, progress(migration), m.advice())
	case err != nil:
		return err
	case m.options.abort:
		return m.concludeAbort(migration, shard)
	}
	return m.concludeMove(migration, shard)
}

// shardOf returns the name of the shard that has a logical cluster.
func shardOf(ctx context.Context, get getFunc, cluster string) (string, error) {
	object, err := get(ctx, cluster)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // it was deleted
		return "", nil
	case err != nil:
		return "", fmt.Errorf("reading which shard has the workspace: %w", err)
	}
	return object.GetAnnotations()[corev1alpha1.ShardAnnotationKey], nil
}

// advice says how to go on with a move that has not ended.
func (m *mover) advice() string {
	if m.options.abort {
		return fmt.Sprintf("To follow, repeat: kubectl kcp move :%s --abort", m.path)
	}
	children := ""
	if m.includeChildren {
		children = " --include-children"
	}
	return fmt.Sprintf("To follow, repeat: kubectl kcp move :%s --to %s%s. To give up: kubectl kcp move :%s --abort", m.path, m.to, children, m.path)
}

// progress returns the state of a migration in a line.
func progress(m *migrationv1alpha1.LogicalClusterMigration) string {
	line := fmt.Sprintf("%s: %d objects copied", cmp.Or(m.Status.Phase, migrationv1alpha1.LogicalClusterMigrationPhasePreparing), m.Status.EntriesCopied)
	if worst := conditionsv1alpha1.Worst(m); worst != nil && worst.Message != "" {
		line += ": " + worst.Message
	}
	return line
}

// concludeMove returns nil if the workspace has moved. shard is the one that has the workspace, if the migration does not exist any more.
func (m *mover) concludeMove(last *migrationv1alpha1.LogicalClusterMigration, shard string) error {
	switch {
	case last.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseCompleted, shard == last.Spec.DestinationShard && !m.includeChildren:
		fmt.Fprintf(m.Out, "Workspace %q is on shard %q.\n", m.path, last.Spec.DestinationShard)
		return nil
	case last.Status.Phase != migrationv1alpha1.LogicalClusterMigrationPhaseFailed:
		return fmt.Errorf("LogicalClusterMigration %q was deleted by somebody else", last.Name)
	case conditionsv1alpha1.IsTrue(last, migrationv1alpha1.Aborted):
		return fmt.Errorf("workspace %q was not moved: somebody has given up the move, or deletes the workspace", m.path)
	}
	worst := conditionsv1alpha1.Worst(last)
	if worst == nil {
		return fmt.Errorf("workspace %q was not moved", m.path)
	}
	return fmt.Errorf("the move of workspace %q has failed: %s (%s); kubectl get logicalclustermigration %s -o yaml in :root has all conditions", m.path, worst.Message, worst.Reason, last.Name)
}

// concludeAbort returns nil if the workspace has not moved.
func (m *mover) concludeAbort(last *migrationv1alpha1.LogicalClusterMigration, shard string) error {
	if !conditionsv1alpha1.IsTrue(last, migrationv1alpha1.DataCopied) && shard != last.Spec.DestinationShard {
		fmt.Fprintf(m.Out, "The move is given up. Workspace %q stays on its shard.\n", m.path)
		return nil
	}
	if conditionsv1alpha1.IsFalse(last, migrationv1alpha1.ChildrenMoved) {
		return fmt.Errorf("workspace %q has moved to shard %q, its other children stay where they are: %s",
			m.path, last.Spec.DestinationShard, conditionsv1alpha1.GetMessage(last, migrationv1alpha1.ChildrenMoved))
	}
	return errors.New("it was too late to give up: shard " + last.Spec.DestinationShard + " had taken over the workspace, and has it")
}
