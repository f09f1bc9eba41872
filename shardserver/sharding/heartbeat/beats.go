package heartbeat

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Patience is how long a shard may be silent before it is unknown how it is: four heartbeats.
const Patience = 40 * time.Second

// Beats remembers when the other shards were last heard of, by the clock of this process: a shard was heard of when a
// report with a new beat came. There is one entry for every shard of the installation.
type Beats struct {
	informer *informer.Informer[*shardingv1alpha1.ShardReport]
	now      func() time.Time

	mu     sync.Mutex
	shards map[string]*sighting
}

type sighting struct {
	report *shardingv1alpha1.ShardReport
	at     time.Time
}

// NewBeats returns a memory of the reports that other shards publish.
func NewBeats(registry *storage.Registry) *Beats {
	b := &Beats{now: time.Now, shards: map[string]*sighting{}}
	resource := shardingv1alpha1.Resource("shardreports")
	b.informer = informer.NewWithHandler(resource, storage.NewReader[*shardingv1alpha1.ShardReport](registry, resource).Everywhere().WatchAll,
		informer.EventHandler[*shardingv1alpha1.ShardReport]{OnReplace: b.onReplace, OnAdd: b.onUpdate, OnUpdate: b.onUpdate, OnDelete: b.onDelete})
	return b
}

// Run follows the reports until the context ends.
func (b *Beats) Run(ctx context.Context) { b.informer.Run(ctx) }

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

// onReplace keeps when reports that are still there were last heard of.
func (b *Beats) onReplace(ctx context.Context, reports []*shardingv1alpha1.ShardReport, _ string) error {
	existing := sets.New[string]()
	for _, report := range reports {
		existing.Insert(report.Name)
		_ = b.onUpdate(ctx, report)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for shard := range b.shards {
		if !existing.Has(shard) {
			delete(b.shards, shard)
		}
	}
	return nil
}

// onUpdate records a report. Its name is that of the shard that published it.
func (b *Beats) onUpdate(_ context.Context, report *shardingv1alpha1.ShardReport) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.now()
	if before := b.shards[report.Name]; before != nil && before.report.Spec.Beat == report.Spec.Beat {
		at = before.at
	}
	b.shards[report.Name] = &sighting{report: report, at: at}
	return nil
}

func (b *Beats) onDelete(_ context.Context, report *shardingv1alpha1.ShardReport) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.shards, report.Name)
	return nil
}
