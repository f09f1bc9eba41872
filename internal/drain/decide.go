package drain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Bounds of the time after which a failed migration is tried again. It doubles with every attempt.
const (
	firstBackOff = 30 * time.Second
	maxBackOff   = 30 * time.Minute
)

// LogicalCluster is a logical cluster on the shard.
type LogicalCluster struct {
	Name logicalcluster.Name
	Path string
	// Owner is nil without one.
	Owner    *corev1alpha1.LogicalClusterOwner
	Phase    corev1alpha1.LogicalClusterPhaseType
	Deleting bool
	// Workspace is its Workspace, if it has been read.
	Workspace *tenancyv1alpha1.Workspace
}

// String returns the path, or the name of a logical cluster without one.
func (l LogicalCluster) String() string { return cmp.Or(l.Path, l.Name.String()) }

// Situation is what a drain knows at a moment.
type Situation struct {
	// Shard is the shard that is drained, Shards are all of the installation.
	Shard  *corev1alpha1.Shard
	Shards []corev1alpha1.Shard
	// Migrations are those of this drain. They were read before LogicalClusters, which are all on the shard.
	Migrations      []migrationv1alpha1.LogicalClusterMigration
	LogicalClusters []LogicalCluster
	// Others are running migrations that are not of this drain.
	Others []migrationv1alpha1.LogicalClusterMigration
	// Concurrency is the number of migrations at a time.
	Concurrency int
	// Selector returns the selector of shards of a logical cluster. It is called for those that can move, while migrations can be
	// started; for all of them with Examine. A *RefusedError is a reason why it cannot move.
	Selector func(LogicalCluster) (labels.Selector, error)
	Examine  bool
	Now      time.Time
}

// Decision is what a drain does next.
type Decision struct {
	// Discard are the names of migrations that have ended and whose logical clusters have to be moved again, Start the migrations
	// to create after that.
	Discard []string
	Start   []Start
	Progress
}

// Start is a migration that begins.
type Start struct {
	LogicalCluster
	Destination string
	// Attempt is 1 for the first.
	Attempt int
}

// Progress is what a drain has achieved.
type Progress struct {
	// Moved is the number of logical clusters that are on other shards, Left that of those on the shard without those of the
	// system, and Moving that of the migrations that are under way.
	Moved, Left, Moving int
	// Busy is set if as many migrations run as may, so that nothing but Moving is known.
	Busy bool
	// System is the number of logical clusters that belong to the shard, root included.
	System int
	// Refused are those that cannot be moved; of those that have been looked at, without Situation.Examine.
	Refused []Refused
	// Failed are those whose last migration has failed. They are tried again.
	Failed []Failed
	// Waiting are messages of migrations that wait for another shard, and of those that somebody else has created.
	Waiting []string
	// Unread are messages about what could not be read, so that more may be on the shard.
	Unread []string
}

// Refused is a logical cluster that cannot be moved as things are.
type Refused struct{ LogicalCluster, Reason string }

// Failed is a logical cluster whose last migration has failed.
type Failed struct {
	Refused
	Attempts int
	RetryAt  time.Time
}

// IsDone reports whether nothing but what belongs to the shard is left on it.
func (p Progress) IsDone() bool { return !p.Busy && p.Left == 0 && p.Moving == 0 && len(p.Unread) == 0 }

// IsIdle reports whether nothing moves, and nothing is tried again.
func (p Progress) IsIdle() bool { return p.Moving == 0 && len(p.Failed) == 0 && len(p.Waiting) == 0 }

// Total returns the number of logical clusters that the drain is about.
func (p Progress) Total() int { return p.Moved + p.Left }

// RefusedError is the error of a logical cluster that cannot be moved.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

// decision is a Decision in the making.
type decision struct {
	Situation
	Decision
	byCluster map[string]*migrationv1alpha1.LogicalClusterMigration
	others    map[string]string
	onTheWay  map[string]int64
	// moving are the logical clusters that move, parents those with a child that moves.
	moving, parents map[string]bool
}

// Decide returns what to do next. The error is one of Selector.
func Decide(s Situation) (Decision, error) {
	d := &decision{Situation: s, byCluster: map[string]*migrationv1alpha1.LogicalClusterMigration{}, others: map[string]string{}, onTheWay: map[string]int64{}, moving: map[string]bool{}, parents: map[string]bool{}}
	for i := range s.Others {
		d.others[s.Others[i].Spec.LogicalCluster] = s.Others[i].Name
		d.onTheWay[s.Others[i].Spec.DestinationShard]++
		d.moving[s.Others[i].Spec.LogicalCluster] = true
	}
	for i := range s.Migrations {
		migration := &s.Migrations[i]
		d.byCluster[migration.Spec.LogicalCluster] = migration
		switch {
		case isRunning(migration):
			d.Moving++
			d.moving[migration.Spec.LogicalCluster] = true
			d.onTheWay[migration.Spec.DestinationShard]++
			if message := waitingMessage(migration); message != "" {
				d.Waiting = append(d.Waiting, message)
			}
		case migration.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseCompleted:
			d.Moved++
		}
	}
	ordered := inOrder(s.LogicalClusters)
	for _, cluster := range ordered {
		if d.moving[cluster.Name.String()] {
			d.markParent(cluster)
		}
	}
	for _, cluster := range ordered {
		if err := d.add(cluster); err != nil {
			return Decision{}, err
		}
	}
	d.Moving += len(d.Start)
	d.countHandedOver()
	return d.Decision, nil
}

// countHandedOver counts logical clusters that have left the shard, but whose migrations have not ended, as left: the total stays the same.
func (d *decision) countHandedOver() {
	here := map[string]bool{}
	for _, cluster := range d.LogicalClusters {
		here[cluster.Name.String()] = true
	}
	for cluster, migration := range d.byCluster {
		if isRunning(migration) && !here[cluster] {
			d.Left++
		}
	}
}

// inOrder sorts logical clusters by path, so that each pass looks at them in the same order, and the deepest first, so that a Workspace
// is where it was while its logical cluster moves. Nothing says how large each is.
func inOrder(clusters []LogicalCluster) []LogicalCluster {
	return slices.SortedFunc(slices.Values(clusters), func(a, b LogicalCluster) int {
		return cmp.Or(cmp.Compare(strings.Count(b.Path, ":"), strings.Count(a.Path, ":")), cmp.Compare(a.String(), b.String()), cmp.Compare(a.Name.String(), b.Name.String()))
	})
}

func (d *decision) add(cluster LogicalCluster) error {
	if cluster.Name == logicalcluster.Root || cluster.Name.IsSystem() {
		d.System++
		return nil
	}
	d.Left++
	if other := d.others[cluster.Name.String()]; other != "" {
		d.Waiting = append(d.Waiting, fmt.Sprintf("%s: migration %s in root, which is not of this drain, moves it", cluster, other))
		return nil
	}
	next := Start{LogicalCluster: cluster, Attempt: 1}
	avoid := ""
	last := d.byCluster[cluster.Name.String()]
	switch {
	case last == nil:
	case isRunning(last):
		return nil
	case last.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseCompleted:
		d.Moved-- // it has come back since
	default:
		next.Attempt, avoid = attempt(last)+1, last.Spec.DestinationShard
		if retryAt := endOf(last).Add(backOff(next.Attempt - 1)); d.Now.Before(retryAt) {
			d.fail(cluster, last, retryAt)
			return nil
		}
	}
	if !d.Examine && !d.isFree() {
		return nil
	}
	if reason := refusal(cluster); reason != "" {
		d.refuse(cluster, reason)
		return nil
	}
	selector, err := d.Selector(cluster)
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		d.refuse(cluster, refused.Reason)
		return nil
	} else if err != nil {
		return err
	}
	destination, reason := chooseDestination(d.Shard, d.Shards, selector, d.onTheWay, avoid)
	switch {
	case reason != "":
		d.refuse(cluster, reason)
	case d.isFree() && !d.isNextToMoving(cluster):
		d.moving[cluster.Name.String()] = true
		d.markParent(cluster)
		if last != nil {
			d.Discard = append(d.Discard, last.Name)
		}
		next.Destination = destination
		d.Start = append(d.Start, next)
		d.onTheWay[destination]++
	case last != nil && last.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseFailed:
		d.fail(cluster, last, d.Now)
	}
	return nil
}

// markParent records that a child of the parent of a logical cluster moves.
func (d *decision) markParent(cluster LogicalCluster) {
	if cluster.Owner != nil {
		d.parents[cluster.Owner.Cluster] = true
	}
}

// isNextToMoving reports whether the parent or a child of a logical cluster moves: the two moves would wait for each other.
func (d *decision) isNextToMoving(cluster LogicalCluster) bool {
	return d.parents[cluster.Name.String()] || cluster.Owner != nil && d.moving[cluster.Owner.Cluster]
}

// isFree reports whether one more migration can be started.
func (d *decision) isFree() bool { return d.Moving+len(d.Start) < d.Concurrency }

func (d *decision) refuse(cluster LogicalCluster, reason string) {
	d.Refused = append(d.Refused, Refused{cluster.String(), reason})
}

func (d *decision) fail(cluster LogicalCluster, last *migrationv1alpha1.LogicalClusterMigration, retryAt time.Time) {
	reason := fmt.Sprintf("the move to shard %q has failed: %s", last.Spec.DestinationShard, failureMessage(last))
	d.Failed = append(d.Failed, Failed{Refused{cluster.String(), reason}, attempt(last), retryAt})
}

// refusal returns why a logical cluster cannot be moved to any shard, or "".
func refusal(cluster LogicalCluster) string {
	switch {
	case cluster.Deleting:
		return "it is being deleted"
	case cluster.Owner == nil:
		return "it has no Workspace, so that nobody could find it on another shard"
	case cluster.Phase != corev1alpha1.LogicalClusterPhaseReady:
		return fmt.Sprintf("it is in phase %s, not Ready", cluster.Phase)
	}
	return ""
}

// isRunning reports whether a migration has not ended.
func isRunning(migration *migrationv1alpha1.LogicalClusterMigration) bool {
	switch migration.Status.Phase {
	case migrationv1alpha1.LogicalClusterMigrationPhaseCompleted, migrationv1alpha1.LogicalClusterMigrationPhaseFailed:
		return false
	}
	return true
}

// waitingMessage returns what a migration waits for, or "".
func waitingMessage(migration *migrationv1alpha1.LogicalClusterMigration) string {
	copied := conditionsv1alpha1.Get(migration, migrationv1alpha1.DataCopied)
	if copied == nil || copied.Message == "" || copied.Reason == migrationv1alpha1.ReasonCopying || conditionsv1alpha1.IsTrue(migration, migrationv1alpha1.DataCopied) {
		return ""
	}
	return fmt.Sprintf("%s: %s", migration.Name, copied.Message)
}

// failureMessage returns why a migration has failed.
func failureMessage(migration *migrationv1alpha1.LogicalClusterMigration) string {
	for _, condition := range []conditionsv1alpha1.Type{migrationv1alpha1.OriginReady, migrationv1alpha1.DataCopied} {
		if message := conditionsv1alpha1.GetMessage(migration, condition); message != "" && conditionsv1alpha1.IsFalse(migration, condition) {
			return message
		}
	}
	return "it was aborted"
}

// endOf returns when a migration has ended.
func endOf(migration *migrationv1alpha1.LogicalClusterMigration) time.Time {
	end := migration.CreationTimestamp
	for _, condition := range migration.Status.Conditions {
		if end.Before(&condition.LastTransitionTime) {
			end = condition.LastTransitionTime
		}
	}
	return end.Time
}

// attempt returns the number of the attempt that a migration is.
func attempt(migration *migrationv1alpha1.LogicalClusterMigration) int {
	number, err := strconv.Atoi(migration.Annotations[attemptAnnotation])
	if err != nil {
		return 1
	}
	return max(number, 1)
}

// backOff returns the time after a failed attempt until the next.
func backOff(attempt int) time.Duration {
	delay := firstBackOff
	for range attempt - 1 {
		if delay *= 2; delay >= maxBackOff {
			return maxBackOff
		}
	}
	return delay
}

// selectorOf returns the selector of shards of a workspace.
func selectorOf(workspace *tenancyv1alpha1.Workspace) (labels.Selector, error) {
	if workspace.Spec.Location == nil || workspace.Spec.Location.Selector == nil {
		return labels.Everything(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(workspace.Spec.Location.Selector)
	if err != nil {
		return nil, &RefusedError{fmt.Sprintf("its spec.location.selector is invalid: %v", err)}
	}
	return selector, nil
}

// String returns the numbers: "12 of 200 moved, 2 moving, 1 refused".
func (p Progress) String() string {
	text := fmt.Sprintf("%d of %d moved", p.Moved, p.Total())
	for _, part := range []struct {
		count int
		what  string
	}{{p.Moving, "moving"}, {len(p.Refused), "refused"}, {len(p.Failed), "failed"}} {
		if part.count > 0 {
			text += fmt.Sprintf(", %d %s", part.count, part.what)
		}
	}
	return text
}
