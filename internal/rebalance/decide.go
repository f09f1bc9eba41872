package rebalance

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/internal/moves"
	"github.com/atoll-dev/atoll/internal/placementrules"
)

const (
	// Cooldown is how long a logical cluster that the rebalancer has moved, or has failed to move, is left where it is.
	Cooldown = 24 * time.Hour
	// maxSuggestions bounds the moves of a decision.
	maxSuggestions = 10
	// maxExamined bounds the logical clusters of a shard that a decision examines.
	maxExamined = 500
	// maxStuck is the number of migrations without progress at which no other one begins.
	maxStuck = 3
)

// Situation is what the rebalancer knows at a moment.
type Situation struct {
	Shards []corev1alpha1.Shard
	// Migrations are those of the rebalancer, Others the running ones of others.
	Migrations, Others []migrationv1alpha1.LogicalClusterMigration
	// Threshold is by how many percent of its share a shard may be above its share.
	Threshold int32
	// On returns what is on a shard. It is called for shards that have too much.
	On func(shard string) (moves.Inventory, error)
	// Selector returns the selector of shards of a logical cluster; a *moves.RefusedError is why it stays.
	Selector func(moves.LogicalCluster) (labels.Selector, error)
	Now      time.Time
}

// Move is a move that brings shards closer to their shares.
type Move struct {
	moves.LogicalCluster
	From, To string
	// Reason has the loads of both shards.
	Reason string
}

// Decision is what the rebalancer would do, if it may.
type Decision struct {
	// Moves are the first of the moves that are needed, in their order.
	Moves []Move
	// Over has a line for each shard that is above its share and the threshold.
	Over []string
	// Running is the number of migrations of the rebalancer that have not ended, Stuck that of those among them that have made no progress for
	// a long time, Moved that of those that have moved something within the cooldown, Failed has what has gone wrong within it.
	Running, Stuck, Moved int
	Failed                []string
	// Unread are messages about what could not be read.
	Unread []string
	// GiveUp are running migrations that wait for a shard which has been closed, or is full: a shard that is being deleted waits for them.
	// Expired are those that have ended, and whose cooldown is over.
	GiveUp, Expired []*migrationv1alpha1.LogicalClusterMigration
}

// member is a shard among those that can exchange logical clusters.
type member struct {
	shard *corev1alpha1.Shard
	// low is the load without what is leaving, high with what is on the way. What has just been handed over may be in the load of either
	// shard, or of none: a shard gives by the one number, and receives by the other.
	load, low, high int64
	weight          float64
	share           float64
}

// level is how full a shard is in comparison with its share: 1 is exactly its share.
func (m *member) level() float64 { return float64(m.low) / max(m.share, 1) }

type decision struct {
	Situation
	Decision
	onTheWay map[string]int64
	leaving  map[string]int64
	// resting are logical clusters that are not moved: those that move, and those whose cooldown is not over.
	resting map[string]bool
	moving  map[string]bool
}

// Decide returns what to move. A shard gives what is above its share once it is above the threshold, and no shard receives more than its share:
// what has been received is therefore never above a threshold, and nothing moves back.
func Decide(s Situation) Decision {
	d := &decision{Situation: s, onTheWay: map[string]int64{}, leaving: map[string]int64{}, resting: map[string]bool{}, moving: map[string]bool{}}
	d.addMigrations()
	for _, group := range d.groups() {
		d.balance(group)
	}
	return d.Decision
}

func (d *decision) addMigrations() {
	for i := range d.Others {
		d.addRunning(&d.Others[i])
	}
	for i := range d.Migrations {
		migration := &d.Migrations[i]
		completed := migration.Status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseCompleted
		switch {
		case moves.IsRunning(migration):
			d.Running++
			if moves.IsStuck(migration) {
				d.Stuck++
				d.Failed = append(d.Failed, fmt.Sprintf("%s to shard %q: %s", migration.Name, migration.Spec.DestinationShard, conditionsv1alpha1.GetMessage(migration, migrationv1alpha1.Progressing)))
			}
			d.addRunning(migration)
			if moves.IsRefused(migration, d.Shards) {
				d.GiveUp = append(d.GiveUp, migration)
			}
		case d.Now.Sub(moves.EndOf(migration)) >= Cooldown:
			d.Expired = append(d.Expired, migration)
		default:
			d.resting[migration.Spec.LogicalCluster] = true
			if completed {
				d.Moved++
			} else {
				d.Failed = append(d.Failed, fmt.Sprintf("%s to shard %q: %s", migration.Name, migration.Spec.DestinationShard, moves.FailureMessage(migration)))
			}
		}
	}
}

func (d *decision) addRunning(migration *migrationv1alpha1.LogicalClusterMigration) {
	d.resting[migration.Spec.LogicalCluster], d.moving[migration.Spec.LogicalCluster] = true, true
	d.onTheWay[migration.Spec.DestinationShard]++
	d.leaving[migration.Status.OriginShard]++
}

// groups returns the shards that can exchange logical clusters: those that are open and healthy, in the same region, with the same external URL.
func (d *decision) groups() [][]*member {
	groups := map[string][]*member{}
	for i := range d.Shards {
		shard := &d.Shards[i]
		_, refusal := placementrules.FromStatus(shard, 0).Candidate(placementrules.NotClosed, placementrules.Reporting, placementrules.Healthy)
		if refusal != nil {
			continue
		}
		key := shard.Labels[corev1alpha1.RegionLabelKey] + " " + placementrules.ExternalURL(shard)
		load := placementrules.Value(shard.Status.Load, placementrules.LogicalClusters)
		groups[key] = append(groups[key], &member{shard: shard, load: load, low: load - d.leaving[shard.Name], high: load + d.onTheWay[shard.Name]})
	}
	var all [][]*member
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		group := groups[key]
		setShares(group)
		all = append(all, group)
	}
	return all
}

// setShares divides the load by the capacities of the shards, or equally if one has no capacity.
func setShares(group []*member) {
	weights, total := 0.0, 0.0
	limited := !slices.ContainsFunc(group, func(m *member) bool { return capacity(m.shard) == 0 })
	for _, m := range group {
		if m.weight = 1; limited {
			m.weight = float64(capacity(m.shard))
		}
		weights += m.weight
		total += float64(m.load)
	}
	for _, m := range group {
		m.share = total * m.weight / weights
	}
}

func capacity(shard *corev1alpha1.Shard) int64 {
	candidate, _ := placementrules.FromStatus(shard, 0).Candidate()
	return candidate.Capacity
}

// balance appends the moves within a group.
func (d *decision) balance(group []*member) {
	byLevel := func(a, b *member) int {
		return cmp.Or(cmp.Compare(b.level(), a.level()), cmp.Compare(a.shard.Name, b.shard.Name))
	}
	for _, donor := range slices.SortedFunc(slices.Values(group), byLevel) {
		if !d.isOver(donor) {
			continue
		}
		d.Over = append(d.Over, fmt.Sprintf("shard %q has %d workspaces, its share is %.0f", donor.shard.Name, donor.low, donor.share))
		if len(d.Moves) >= maxSuggestions {
			continue
		}
		inventory, err := d.On(donor.shard.Name)
		if err != nil {
			d.Unread = append(d.Unread, err.Error())
			continue
		}
		d.empty(donor, group, inventory.LogicalClusters)
	}
}

// MayBegin reports whether a migration may begin beside those that run, of which at most maxConcurrent make progress. A few that are stuck do not keep
// the others from moving; more of them say that something is wrong with the installation.
func (d *Decision) MayBegin(maxConcurrent int) bool {
	return d.Running-d.Stuck < maxConcurrent && d.Stuck < maxStuck
}

// isOver reports whether a shard has to give something.
func (d *decision) isOver(m *member) bool {
	return float64(m.low) > m.share*(1+float64(d.Threshold)/100) && float64(m.low)-m.share >= 1
}

// empty appends moves from one shard until it is not above the threshold, or nothing more can be moved.
func (d *decision) empty(donor *member, group []*member, on []moves.LogicalCluster) {
	parents := map[string]bool{}
	for _, cluster := range on {
		if cluster.Owner != nil {
			parents[cluster.Owner.Cluster] = true
		}
	}
	examined := 0
	for _, cluster := range slices.SortedFunc(slices.Values(on), func(a, b moves.LogicalCluster) int { return cmp.Compare(a.String(), b.String()) }) {
		if !d.isOver(donor) || len(d.Moves) >= maxSuggestions || examined >= maxExamined {
			return
		}
		// A workspace with workspaces below it on the same shard stays with them.
		if cluster.IsSystem() || parents[cluster.Name.String()] || d.resting[cluster.Name.String()] || cluster.Refusal() != "" || d.moving[cluster.Owner.Cluster] {
			continue
		}
		examined++
		selector, err := d.Selector(cluster)
		if refused := (*moves.RefusedError)(nil); errors.As(err, &refused) {
			continue
		} else if err != nil {
			d.Unread = append(d.Unread, err.Error())
			continue
		}
		if to := d.receiver(donor, group, selector); to != nil {
			d.Moves = append(d.Moves, Move{cluster, donor.shard.Name, to.shard.Name, fmt.Sprintf(
				"shard %q has %d workspaces, its share is %.0f; shard %q has %d, its share is %.0f", donor.shard.Name, donor.low, donor.share, to.shard.Name, to.high, to.share)})
			donor.low--
			to.high++
			d.onTheWay[to.shard.Name]++
			d.moving[cluster.Name.String()] = true
		}
	}
}

// receiver returns the shard to which a logical cluster of a shard moves, or nil: one that does not get more than its share by it.
func (d *decision) receiver(donor *member, group []*member, selector labels.Selector) *member {
	destinations := moves.Destinations{Origin: donor.shard, OnTheWay: d.onTheWay}
	for _, m := range group {
		if m != donor && float64(m.high)+1 <= m.share {
			destinations.Shards = append(destinations.Shards, *m.shard)
		}
	}
	name, _ := destinations.Choose(selector, "")
	for _, m := range group {
		if m.shard.Name == name {
			return m
		}
	}
	return nil
}
