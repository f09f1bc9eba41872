package migration

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
)

const (
	migrationKind = "LogicalClusterMigration"
	// movingChildAnnotation on a migration has the logical cluster of the child that it has created a migration for last. It
	// distinguishes a child whose migration was deleted from one that has none yet.
	movingChildAnnotation = "internal.migration.kcp.io/moving-child"
	// maxParentName is how much of the name of a migration is in the names of those that it creates.
	maxParentName = 180
)

// includesChildren reports whether a migration moves the logical clusters below, too.
func includesChildren(migration *migrationv1alpha1.LogicalClusterMigration) bool {
	return migration.Annotations[migrationv1alpha1.IncludeChildrenAnnotationKey] == "true"
}

// Child returns the migration to create for the next logical cluster below, or nil. There is one at a time.
func (h Home) Child() *migrationv1alpha1.LogicalClusterMigration {
	m := h.Migration
	children := h.Reports[m.Spec.DestinationShard].Children
	if m.Status.Phase != migrationv1alpha1.LogicalClusterMigrationPhaseDestinationFinalize || !includesChildren(m) || m.DeletionTimestamp != nil ||
		children == nil || children.Next == "" || h.stoppedChild() != nil {
		return nil
	}
	for _, child := range h.Children {
		if !hasEnded(child) || child.Spec.LogicalCluster == children.Next {
			return nil // the report is older than the end of that migration
		}
	}
	return h.newChild(children.Next)
}

// newChild returns the migration of a child.
func (h Home) newChild(cluster string) *migrationv1alpha1.LogicalClusterMigration {
	m := h.Migration
	child := &migrationv1alpha1.LogicalClusterMigration{
		ObjectMeta: metav1.ObjectMeta{
			Name:            m.Name[:min(len(m.Name), maxParentName)] + "-" + cluster,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(m, migrationv1alpha1.SchemeGroupVersion.WithKind(migrationKind))},
		},
		Spec: migrationv1alpha1.LogicalClusterMigrationSpec{LogicalCluster: cluster, DestinationShard: m.Spec.DestinationShard},
	}
	if value, set := m.Annotations[migrationv1alpha1.IgnoreSelectorAnnotationKey]; set {
		metav1.SetMetaDataAnnotation(&child.ObjectMeta, migrationv1alpha1.IgnoreSelectorAnnotationKey, value)
	}
	return child
}

// finalize ends a migration whose logical cluster is served by the destination alone, after those of its children.
func (h Home) finalize(m *migrationv1alpha1.LogicalClusterMigration, destination shardingv1alpha1.LogicalClusterMigrationReportSpec) {
	switch {
	case destination.State == shardingv1alpha1.MigrationFinished && !includesChildren(m):
		complete(m)
	case !includesChildren(m):
	case m.DeletionTimestamp != nil:
		m.Status.Phase = migrationv1alpha1.LogicalClusterMigrationPhaseFailed
		conditionsv1alpha1.MarkFalse(m, migrationv1alpha1.ChildrenMoved, migrationv1alpha1.ReasonStopped, conditionsv1alpha1.SeverityInfo,
			"the migration was deleted; the logical cluster and %d below were moved, and stay on shard %q", h.childrenMoved(), m.Spec.DestinationShard)
	default:
		h.finalizeChildren(m, destination)
	}
}

func (h Home) finalizeChildren(m *migrationv1alpha1.LogicalClusterMigration, destination shardingv1alpha1.LogicalClusterMigrationReportSpec) {
	if stopped := h.stoppedChild(); stopped != nil {
		m.Status.Phase = migrationv1alpha1.LogicalClusterMigrationPhaseFailed
		conditionsv1alpha1.MarkFalse(m, migrationv1alpha1.ChildrenMoved, stopped.reason, conditionsv1alpha1.SeverityError,
			"%s; the logical cluster and %d below were moved, and stay on shard %q. Create the same migration under another name to move the rest",
			stopped.message, h.childrenMoved(), m.Spec.DestinationShard)
		return
	}
	if running := h.runningChild(); running != nil {
		conditionsv1alpha1.MarkFalse(m, migrationv1alpha1.ChildrenMoved, migrationv1alpha1.ReasonMovingChildren, conditionsv1alpha1.SeverityInfo,
			"%d below were moved; migration %q of logical cluster %q is in phase %s%s", h.childrenMoved(), running.Name, running.Spec.LogicalCluster, running.Status.Phase, openCondition(running))
		return
	}
	switch children := destination.Children; {
	case destination.State != shardingv1alpha1.MigrationFinished || children == nil:
	case children.Next == "":
		conditionsv1alpha1.MarkTrue(m, migrationv1alpha1.ChildrenMoved)
		complete(m)
	default:
		conditionsv1alpha1.MarkFalse(m, migrationv1alpha1.ChildrenMoved, migrationv1alpha1.ReasonMovingChildren, conditionsv1alpha1.SeverityInfo,
			"%d below were moved; %s is next", h.childrenMoved(), children.Workspace)
	}
}

func complete(m *migrationv1alpha1.LogicalClusterMigration) {
	m.Status.Phase = migrationv1alpha1.LogicalClusterMigrationPhaseCompleted
	conditionsv1alpha1.MarkTrue(m, migrationv1alpha1.Completed)
}

// alreadyThere reports whether the logical cluster is on the destination, so that only those below are to be moved.
func (h Home) alreadyThere() bool {
	report := h.Reports[h.Migration.Spec.DestinationShard]
	return includesChildren(h.Migration) && report.State == shardingv1alpha1.MigrationFinished && report.Children != nil
}

// skipOwnMove begins with the children.
func skipOwnMove(m *migrationv1alpha1.LogicalClusterMigration) {
	m.Status.OriginShard, m.Status.Phase = m.Spec.DestinationShard, migrationv1alpha1.LogicalClusterMigrationPhaseDestinationFinalize
	for _, condition := range []conditionsv1alpha1.Type{migrationv1alpha1.OriginReady, migrationv1alpha1.DataCopied, migrationv1alpha1.OriginCleaned} {
		conditionsv1alpha1.MarkTrue(m, condition)
	}
}

// stoppedChild returns why no other child may be moved, or nil.
func (h Home) stoppedChild() *refusal {
	last := h.Migration.Annotations[movingChildAnnotation]
	exists := last == ""
	for _, child := range h.Children {
		exists = exists || child.Spec.LogicalCluster == last
		if child.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseFailed {
			return &refusal{migrationv1alpha1.ReasonChildFailed, fmt.Sprintf("migration %q of logical cluster %q failed%s", child.Name, child.Spec.LogicalCluster, openCondition(child))}
		}
	}
	if children := h.Reports[h.Migration.Spec.DestinationShard].Children; !exists && children != nil && children.Next == last {
		return &refusal{migrationv1alpha1.ReasonStopped, fmt.Sprintf("the migration of %s was deleted", children.Workspace)}
	}
	return nil
}

func (h Home) runningChild() *migrationv1alpha1.LogicalClusterMigration {
	for _, child := range h.Children {
		if !hasEnded(child) {
			return child
		}
	}
	return nil
}

func (h Home) childrenMoved() (count int) {
	for _, child := range h.Children {
		if child.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseCompleted {
			count++
		}
	}
	return count
}

// openCondition returns the message of what a migration waits for, as the end of a sentence.
func openCondition(m *migrationv1alpha1.LogicalClusterMigration) string {
	worst := conditionsv1alpha1.Worst(m)
	if worst == nil || worst.Message == "" {
		return ""
	}
	return ": " + worst.Message
}
