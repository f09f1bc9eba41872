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

// Timeout is the age of a report at which the state of a shard is unknown: four heartbeats.
const Timeout = 40 * time.Second

// Tracker tracks the last reports of the other shards and when they were received, by the clock of this process. A
// report counts as new if its beat is. There is one entry for each shard of the installation.
type Tracker struct {
	informer *informer.Informer[*shardingv1alpha1.ShardReport]
	now      func() time.Time

	mu     sync.Mutex
	shards map[string]*observation
}

type observation struct {
	report     *shardingv1alpha1.ShardReport
	receivedAt time.Time
}

// NewTracker returns a Tracker of the reports that other shards publish.
func NewTracker(registry *storage.Registry) *Tracker {
	t := &Tracker{now: time.Now, shards: map[string]*observation{}}
	resource := shardingv1alpha1.Resource("shardreports")
	t.informer = informer.NewWithHandler(resource, storage.NewReader[*shardingv1alpha1.ShardReport](registry, resource).Global().WatchAll,
		informer.EventHandler[*shardingv1alpha1.ShardReport]{OnReplace: t.onReplace, OnAdd: t.onUpdate, OnUpdate: t.onUpdate, OnDelete: t.onDelete})
	return t
}

// Run watches the reports until the context ends.
func (t *Tracker) Run(ctx context.Context) { t.informer.Run(ctx) }

// LastReport returns the last report of another shard and its age, or nil if there is none.
func (t *Tracker) LastReport(shard string) (*shardingv1alpha1.ShardReport, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.shards[shard]
	if last == nil {
		return nil, 0
	}
	return last.report, t.now().Sub(last.receivedAt)
}

// LiveReport returns the last report of another shard, or nil if it is older than Timeout.
func (t *Tracker) LiveReport(shard string) *shardingv1alpha1.ShardReport {
	report, age := t.LastReport(shard)
	if age > Timeout {
		return nil
	}
	return report
}

// onReplace keeps the receive times of reports that still exist.
func (t *Tracker) onReplace(ctx context.Context, reports []*shardingv1alpha1.ShardReport, _ string) error {
	existing := sets.New[string]()
	for _, report := range reports {
		existing.Insert(report.Name)
		_ = t.onUpdate(ctx, report)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for shard := range t.shards {
		if !existing.Has(shard) {
			delete(t.shards, shard)
		}
	}
	return nil
}

// onUpdate records a report. Its name is that of the shard that published it.
func (t *Tracker) onUpdate(_ context.Context, report *shardingv1alpha1.ShardReport) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	receivedAt := t.now()
	if before := t.shards[report.Name]; before != nil && before.report.Spec.Beat == report.Spec.Beat {
		receivedAt = before.receivedAt
	}
	t.shards[report.Name] = &observation{report: report, receivedAt: receivedAt}
	return nil
}

func (t *Tracker) onDelete(_ context.Context, report *shardingv1alpha1.ShardReport) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.shards, report.Name)
	return nil
}
