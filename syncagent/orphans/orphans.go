// Package orphans finds copies whose primary object does not exist any more, and deletes them if the owner of the service wants it.
package orphans

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/syncer"
)

// Reason is the reason of the condition and of the event about orphans.
const Reason = "OrphanedCopies"

// Config configures a Finder.
type Config struct {
	Publication *publication.Publication
	// Resource is the published resource in workspaces.
	Resource workspaces.Resource
	// Policy is what happens to orphans; Delay is how long the Finder waits after a change before it checks.
	Policy options.OrphanPolicy
	Delay  time.Duration
	Known  *workspaces.Known
	Copies *workspaces.Informer
	// Primaries returns the stores of the primary objects, one for each endpoint, nil for one that does not serve them yet. It returns false
	// unless all are complete.
	Primaries func() (stores []*workspaces.Store, complete bool)
	// Syncer configures the deletion of a copy.
	Syncer   syncer.Config
	Recorder events.EventRecorder
	// Changed is called when the number of orphans changes.
	Changed func()
}

// Finder finds the copies of a publication whose primary object exists at none of the endpoints that the agent has ever used: its workspace
// was unbound or deleted while the agent could not act. While an endpoint cannot be read, or the slice is not valid, the agent cannot prove
// that an object does not exist, so it decides nothing.
type Finder struct {
	config Config
	wake   background.Signal

	mu   sync.Mutex
	keys []workspaces.Key
}

// NewFinder returns a Finder, which does nothing before Run.
func NewFinder(config Config) *Finder {
	return &Finder{config: config, wake: background.NewSignal()}
}

// Trigger schedules a check for orphans.
func (f *Finder) Trigger() { f.wake.Set() }

// Keys returns the keys of the orphans, sorted.
func (f *Finder) Keys() []workspaces.Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keys
}

// Run checks for orphans after each change that may create one.
func (f *Finder) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		}
		if !background.Sleep(ctx, f.config.Delay) {
			return
		}
		if err := f.check(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Failed to find orphans")
			f.Trigger()
		}
	}
}

// check checks for orphans once. If the result is unknown, it does not change the previous one; any change that may decide it triggers
// another check. So does an error: a copy whose workspace does not answer, because it moves or is unavailable, does not hide the others.
func (f *Finder) check(ctx context.Context) error {
	candidates, known := f.candidates()
	if !known {
		return nil
	}
	endpoints, complete := f.config.Known.Evidence()
	if !complete {
		return nil
	}
	keys, err := f.confirm(ctx, endpoints, candidates)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	reported := keys
	if err != nil {
		reported = stillReported(keys, f.Keys(), candidates)
	}
	f.report(reported)
	if f.config.Policy == options.DeleteOrphans {
		f.delete(ctx, keys)
	}
	return err
}

// candidates returns the keys of the copies of this resource whose primary object is in no store, and false if that is unknown.
func (f *Finder) candidates() (keys []workspaces.Key, known bool) {
	if synced, err := f.config.Copies.Status(); !synced || err != nil {
		return nil, false
	}
	stores, complete := f.config.Primaries()
	if !complete {
		return nil, false
	}
	for _, key := range f.config.Copies.Keys() {
		index := f.config.Copies.IndexOf(key)
		if index == (workspaces.IndexKey{}) || isIn(stores, index) {
			continue
		}
		if object := f.config.Copies.Get(key); object != nil && f.isOwn(object) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, workspaces.Key.Compare)
	return keys, true
}

func isIn(stores []*workspaces.Store, index workspaces.IndexKey) bool {
	return slices.ContainsFunc(stores, func(store *workspaces.Store) bool { return store == nil || store.HasIndex(index) })
}

// isOwn reports whether a copy certainly belongs to this publication. Several publications may have copies of one kind; a copy without
// the label of its resource may belong to any of them.
func (f *Finder) isOwn(object metav1.Object) bool {
	return object.GetLabels()[publication.LabelRemoteResource] != "" && syncer.BelongsTo(object, f.config.Resource)
}

// report updates the metric, and emits an event and requeues the publication when the number of orphans changes.
func (f *Finder) report(keys []workspaces.Key) {
	f.mu.Lock()
	before := len(f.keys)
	f.keys = keys
	f.mu.Unlock()
	orphanedCopies.WithLabelValues(f.config.Publication.Object.GetName()).Set(float64(len(keys)))
	if len(keys) == before {
		return
	}
	if len(keys) > before {
		f.config.Recorder.Eventf(f.config.Publication.Object, nil, corev1.EventTypeWarning, Reason, "FindOrphans", Message(len(keys), keys[0]))
	}
	f.config.Changed()
}

// DeleteMetrics deletes the metric of the publication.
func (f *Finder) DeleteMetrics() {
	orphanedCopies.DeleteLabelValues(f.config.Publication.Object.GetName())
}

// delete deletes orphans that confirm has just returned.
func (f *Finder) delete(ctx context.Context, keys []workspaces.Key) {
	for _, key := range keys {
		if err := f.deleteOrphan(ctx, key); err != nil {
			log.FromContext(ctx).Error(err, "Failed to delete an orphan", "namespace", key.Namespace, "name", key.Name)
			f.Trigger()
		}
	}
}

// Message describes orphans to the owner of the service.
func Message(count int, first workspaces.Key) string {
	return fmt.Sprintf("%d copies have no source any more, for example %s: their workspaces were unbound or deleted. "+
		"`sync-agent cleanup` lists them, and removes them with --delete.", count, first)
}
