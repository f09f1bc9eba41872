package heartbeat

import (
	"context"
	"sync"
	"time"

	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Patience is how long a shard may be silent before it is unknown how it is: four heartbeats.
const Patience = 40 * time.Second

// Beats remembers when the other shards were last heard of, by the clock of this process: a shard was heard of when a
// report with a new beat came. There is one entry for every shard of the installation.
type Beats struct {
	following *storage.Following[*shardingv1alpha1.ShardReport]
	now       func() time.Time

	mu     sync.Mutex
	shards map[string]*sighting
}

type sighting struct {
	report *shardingv1alpha1.ShardReport
	at     time.Time
	// stale tells that the watch began anew and has not brought the report yet.
	stale bool
}

// NewBeats returns a memory of the reports that other shards publish.
func NewBeats(registry *storage.Registry) *Beats {
	b := &Beats{now: time.Now, shards: map[string]*sighting{}}
	resource := shardingv1alpha1.Resource("shardreports")
	b.following = storage.NewFollowing(resource, storage.NewReader[*shardingv1alpha1.ShardReport](registry, resource).Everywhere().WatchAll, follower{b})
	return b
}

// Run follows the reports until the context ends.
func (b *Beats) Run(ctx context.Context) { b.following.Run(ctx) }

// Last returns the last report of another shard, or nil if none is known, and how long ago it was heard of.
func (b *Beats) Last(shard string) (*shardingv1alpha1.ShardReport, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := b.shards[shard]
	if seen == nil {
		return nil, 0
	}
	return seen.report, b.now().Sub(seen.at)
}

// Alive returns the last report of another shard, or nil if it has not been heard of for longer than Patience.
func (b *Beats) Alive(shard string) *shardingv1alpha1.ShardReport {
	report, silent := b.Last(shard)
	if silent > Patience {
		return nil
	}
	return report
}

// follower takes in what the watch brings.
type follower struct{ *Beats }

// Begin implements storage.Follower.
func (f follower) Begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, seen := range f.shards {
		seen.stale = true
	}
}

// Take implements storage.Follower. The name of a report is that of the shard that published it.
func (f follower) Take(_ context.Context, report *shardingv1alpha1.ShardReport, deleted bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if deleted {
		delete(f.shards, report.Name)
		return nil
	}
	at := f.now()
	if before := f.shards[report.Name]; before != nil && before.report.Spec.Beat == report.Spec.Beat {
		at = before.at
	}
	f.shards[report.Name] = &sighting{report: report, at: at}
	return nil
}

// Complete implements storage.Follower.
func (f follower) Complete(string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for shard, seen := range f.shards {
		if seen.stale {
			delete(f.shards, shard)
		}
	}
}

// Saw implements storage.Follower.
func (follower) Saw(string) {}

// End implements storage.Follower. What was heard of stays known: it ages.
func (follower) End() {}
