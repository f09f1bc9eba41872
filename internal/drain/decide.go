package drain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/internal/moves"
)

// Bounds of the time after which a failed migration is tried again. It doubles with every attempt.
const (
	firstBackOff = 30 * time.Second
	maxBackOff   = 30 * time.Minute
)

// MaxAttempts is the number of failed migrations of a logical cluster after which a client should not wait for the next one, which follows in
// any case.
const MaxAttempts = 3

// Situation is what a drain knows at a moment.
type Situation struct {
	// Shard is the shard that is drained, Shards are all of the installation.
	Shard  *corev1alpha1.Shard
	Shards []corev1alpha1.Shard
	// Migrations are those of this drain. They were read before LogicalClusters, which are all on the shard.
	Migrations      []migrationv1alpha1.LogicalClusterMigration
	LogicalClusters []moves.LogicalCluster
	// Others are running migrations that are not of this drain.
	Others []migrationv1alpha1.LogicalClusterMigration
	// Concurrency is the number of migrations at a time. Those that make no progress do not count.
	Concurrency int
	// Selector returns the selector of shards of a logical cluster. It is called for those that can move, while migrations can be
	// started; for all of them with Examine. A *moves.RefusedError is a reason why it cannot move; with any other error it is
	// left out, and the others are moved.
	Selector func(moves.LogicalCluster) (labels.Selector, error)
	Examine  bool
	Now      time.Time
}

// Decision is what a drain does next.
type Decision struct {
	// Discard are migrations that have ended and whose logical clusters have to be moved again, GiveUp running ones that may not begin
	// and whose logical clusters can go elsewhere, Start the migrations to create after Discard.
	Discard, GiveUp []*migrationv1alpha1.LogicalClusterMigration
	Start           []Start
	Progress
}

// Start is a migration that begins.
type Start struct {
	moves.LogicalCluster
	Destination string
	// Attempt is 1 for the first.
	Attempt int
}

// decision is a Decision in the making.
type decision struct {
	Situation
	Decision
	destinations moves.Destinations
	// slots is the number of migrations that count for Concurrency.
	slots     int
	byCluster map[string]*migrationv1alpha1.LogicalClusterMigration
	others    map[string]string
	// withChildren are the logical clusters whose children somebody else moves with them.
	withChildren map[string]string
	// moving are the logical clusters that move, parents those with a child that moves, and later those that can move, but not yet.
	moving, parents, later map[string]bool
}

// Decide returns what to do next.
func Decide(s Situation) Decision {
	d := &decision{
		Situation: s, byCluster: map[string]*migrationv1alpha1.LogicalClusterMigration{}, others: map[string]string{}, withChildren: map[string]string{},
		moving: map[string]bool{}, parents: map[string]bool{}, later: map[string]bool{},
		destinations: moves.Destinations{Origin: s.Shard, Shards: s.Shards, OnTheWay: map[string]int64{}, Stuck: map[string]string{}},
	}
	d.addMigrations()
	ordered := inOrder(s.LogicalClusters)
	for _, cluster := range ordered {
		if d.moving[cluster.Name.String()] {
			d.markParent(cluster)
		}
	}
	for _, cluster := range ordered {
		d.add(cluster)
	}
	d.Moving += len(d.Start)
	d.countHandedOver()
	return d.Decision
}

func (d *decision) addMigrations() {
	for i := range d.Others {
		other := &d.Others[i]
		d.others[other.Spec.LogicalCluster] = other.Name
		d.destinations.OnTheWay[other.Spec.DestinationShard]++
		d.moving[other.Spec.LogicalCluster] = true
		if other.Annotations[migrationv1alpha1.IncludeChildrenAnnotationKey] == "true" {
			d.withChildren[other.Spec.LogicalCluster] = other.Name
		}
	}
	for i := range d.Migrations {
		migration := &d.Migrations[i]
		d.byCluster[migration.Spec.LogicalCluster] = migration
		switch {
		case moves.IsRunning(migration):
			d.Moving++
			d.moving[migration.Spec.LogicalCluster] = true
			d.destinations.OnTheWay[migration.Spec.DestinationShard]++
			switch {
			case !moves.IsStuck(migration):
				d.slots++
			case moves.IsUnbegun(migration): // otherwise the shard works, and what cannot be copied is in the logical cluster
				d.destinations.Stuck[migration.Spec.DestinationShard] = migration.Name
			}
			if message := waitingMessage(migration); message != "" {
				d.Waiting = append(d.Waiting, message)
			}
		case migration.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseCompleted:
			d.Moved++
		}
	}
}

// countHandedOver counts logical clusters that have left the shard, but whose migrations have not ended, as left: the total stays the same.
func (d *decision) countHandedOver() {
	here := map[string]bool{}
	for _, cluster := range d.LogicalClusters {
		here[cluster.Name.String()] = true
	}
	for cluster, migration := range d.byCluster {
		if moves.IsRunning(migration) && !here[cluster] {
			d.Left++
		}
	}
}

// inOrder sorts logical clusters: parents before their children; then the smallest first, because the pauses of writes are shorter, and most
// of a shard is empty soon; and by path, so that each pass examines them in the same order.
func inOrder(clusters []moves.LogicalCluster) []moves.LogicalCluster {
	owners := make(map[string]string, len(clusters))
	for _, cluster := range clusters {
		if cluster.Owner != nil {
			owners[cluster.Name.String()] = cluster.Owner.Cluster
		} else {
			owners[cluster.Name.String()] = ""
		}
	}
	// depth is the number of ancestors on the shard. What is below another shard's workspace comes with the first.
	depth := func(cluster moves.LogicalCluster) (depth int) {
		for name := cluster.Name.String(); depth < len(clusters); depth++ {
			owner := owners[name]
			if _, here := owners[owner]; !here {
				break
			}
			name = owner
		}
		return depth
	}
	depths := make(map[string]int, len(clusters))
	for _, cluster := range clusters {
		depths[cluster.Name.String()] = depth(cluster)
	}
	return slices.SortedFunc(slices.Values(clusters), func(a, b moves.LogicalCluster) int {
		return cmp.Or(cmp.Compare(depths[a.Name.String()], depths[b.Name.String()]), cmp.Compare(a.Objects, b.Objects), cmp.Compare(a.String(), b.String()), cmp.Compare(a.Name.String(), b.Name.String()))
	})
}

// add decides about a logical cluster on the shard.
func (d *decision) add(cluster moves.LogicalCluster) {
	if cluster.IsSystem() {
		d.System++
		return
	}
	d.Left++
	if d.isOfOthers(cluster) {
		return
	}
	next, avoid := Start{LogicalCluster: cluster, Attempt: 1}, ""
	last := d.byCluster[cluster.Name.String()]
	switch {
	case last == nil:
	case moves.IsRunning(last):
		d.redirect(cluster, last)
		return
	case last.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseCompleted:
		d.Moved-- // it has come back since
	default:
		if next.Attempt = attempt(last); !wasOfOthers(last) {
			next.Attempt, avoid = next.Attempt+1, last.Spec.DestinationShard
		}
		if retryAt := moves.EndOf(last).Add(backOff(attempt(last))); d.Now.Before(retryAt) {
			d.fail(cluster, last, retryAt)
			return
		}
	}
	if !d.Examine && !d.isFree() {
		d.later[cluster.Name.String()] = true
		return
	}
	destination := d.destinationOf(cluster, avoid)
	switch {
	case destination == "":
	case d.isFree() && !d.isTooEarly(cluster):
		d.start(next, destination, last)
	default:
		d.later[cluster.Name.String()] = true
		if last != nil && last.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseFailed {
			d.fail(cluster, last, d.Now)
		}
	}
}

// isOfOthers reports whether somebody else moves a logical cluster, or is going to.
func (d *decision) isOfOthers(cluster moves.LogicalCluster) bool {
	name := cluster.Name.String()
	migration := d.others[name]
	if cluster.Owner != nil && migration == "" {
		migration = d.withChildren[cluster.Owner.Cluster]
		if migration != "" {
			d.withChildren[name] = migration
		}
	}
	if migration == "" {
		return false
	}
	d.Waiting = append(d.Waiting, fmt.Sprintf("%s: migration %s, which is not of this drain, moves it", cluster, migration))
	return true
}

// destinationOf returns the shard to which a logical cluster moves, or "" after having recorded why there is none.
func (d *decision) destinationOf(cluster moves.LogicalCluster, avoid string) string {
	if reason := cluster.Refusal(); reason != "" {
		d.refuse(cluster, reason)
		return ""
	}
	selector, err := d.Selector(cluster)
	if refused := (*moves.RefusedError)(nil); errors.As(err, &refused) {
		d.refuse(cluster, refused.Reason)
		return ""
	} else if err != nil {
		d.Unread = append(d.Unread, err.Error())
		return ""
	}
	destination, reason := d.destinations.Choose(selector, avoid)
	if reason != "" {
		d.refuse(cluster, reason)
	}
	return destination
}

// redirect gives up a migration that may not begin because its destination has been closed, or is full or silent, if another shard can have
// the logical cluster: it would wait for somebody to open that shard, and hold up others.
func (d *decision) redirect(cluster moves.LogicalCluster, running *migrationv1alpha1.LogicalClusterMigration) {
	if !moves.IsUnbegun(running) {
		return
	}
	selector, err := d.Selector(cluster)
	if err != nil || d.destinations.Accepts(running.Spec.DestinationShard, selector) {
		return
	}
	if _, reason := d.destinations.Choose(selector, running.Spec.DestinationShard); reason == "" {
		d.GiveUp = append(d.GiveUp, running)
	}
}

func (d *decision) start(next Start, destination string, last *migrationv1alpha1.LogicalClusterMigration) {
	d.moving[next.Name.String()] = true
	d.markParent(next.LogicalCluster)
	if last != nil {
		d.Discard = append(d.Discard, last)
	}
	next.Destination = destination
	d.Start = append(d.Start, next)
	d.destinations.OnTheWay[destination]++
}

// markParent records that a child of the parent of a logical cluster moves.
func (d *decision) markParent(cluster moves.LogicalCluster) {
	if cluster.Owner != nil {
		d.parents[cluster.Owner.Cluster] = true
	}
}

// isTooEarly reports whether the parent or a child of a logical cluster moves, so that the two moves would wait for each other, or the parent
// is to move before.
func (d *decision) isTooEarly(cluster moves.LogicalCluster) bool {
	return d.parents[cluster.Name.String()] || cluster.Owner != nil && (d.moving[cluster.Owner.Cluster] || d.later[cluster.Owner.Cluster])
}

// isFree reports whether one more migration can be started.
func (d *decision) isFree() bool { return d.slots+len(d.Start) < d.Concurrency }

func (d *decision) refuse(cluster moves.LogicalCluster, reason string) {
	d.Refused = append(d.Refused, Refused{cluster.String(), reason})
}

func (d *decision) fail(cluster moves.LogicalCluster, last *migrationv1alpha1.LogicalClusterMigration, retryAt time.Time) {
	reason := fmt.Sprintf("the move to shard %q has failed: %s", last.Spec.DestinationShard, moves.FailureMessage(last))
	d.Failed = append(d.Failed, Failed{Refused{cluster.String(), reason}, attempt(last), retryAt})
}

// wasOfOthers reports whether a migration has failed because another one moved its logical cluster.
func wasOfOthers(migration *migrationv1alpha1.LogicalClusterMigration) bool {
	return conditionsv1alpha1.GetReason(migration, migrationv1alpha1.OriginReady) == migrationv1alpha1.ReasonLogicalClusterAlreadyMigrating
}

// waitingMessage returns what a migration waits for, or "".
func waitingMessage(migration *migrationv1alpha1.LogicalClusterMigration) string {
	for _, condition := range []conditionsv1alpha1.Type{migrationv1alpha1.Progressing, migrationv1alpha1.PlacementAllowed, migrationv1alpha1.DataCopied, migrationv1alpha1.OriginCleaned} {
		message := conditionsv1alpha1.GetMessage(migration, condition)
		if conditionsv1alpha1.IsFalse(migration, condition) && message != "" && conditionsv1alpha1.GetReason(migration, condition) != migrationv1alpha1.ReasonCopying {
			return fmt.Sprintf("%s: %s", migration.Name, message)
		}
	}
	return ""
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
