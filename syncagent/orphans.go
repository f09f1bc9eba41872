package syncagent

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/syncer"
)

// orphans are the copies of a synchronization whose primary object exists at none of the endpoints that the agent has ever used: its
// workspace was unbound or deleted while the agent could not act. While an endpoint cannot be read, or the slice is not valid, the agent
// cannot prove that an object does not exist, so it decides nothing.
type orphans struct {
	*synchronization
	wake chan struct{}

	mu   sync.Mutex
	keys []workspaces.Key
}

func newOrphans(s *synchronization) *orphans {
	return &orphans{synchronization: s, wake: make(chan struct{}, 1)}
}

// trigger schedules a check for orphans.
func (o *orphans) trigger() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// found returns the keys of the orphans, sorted.
func (o *orphans) found() []workspaces.Key {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.keys
}

// run checks for orphans after each change that may create one.
func (o *orphans) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		}
		if !background.Sleep(ctx, o.orphanDelay) {
			return
		}
		if err := o.check(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Could not look for orphans")
			o.trigger()
		}
	}
}

// check checks for orphans once. If the result is unknown, it does not change the previous one; any change that may decide it triggers
// another check.
func (o *orphans) check(ctx context.Context) error {
	candidates, known := o.candidates()
	if !known {
		return nil
	}
	connections, complete := o.known.evidence()
	if !complete {
		return nil
	}
	keys, err := o.confirm(ctx, connections, candidates)
	if err != nil {
		return err
	}
	o.report(keys)
	if o.config.OrphanPolicy == options.DeleteOrphans {
		o.delete(ctx, keys)
	}
	return nil
}

// candidates returns the keys of the copies of this resource whose primary object is in no store, and false if that is unknown.
func (o *orphans) candidates() (keys []workspaces.Key, known bool) {
	if synced, err := o.copies.Status(); !synced || err != nil {
		return nil, false
	}
	endpoints := o.currentEndpoints()
	for _, w := range endpoints {
		if w.status() != nil {
			return nil, false
		}
	}
	for _, key := range o.copies.Keys() {
		index := o.copies.IndexOf(key)
		if index == (workspaces.IndexKey{}) || isIn(endpoints, index) {
			continue
		}
		if object := o.copies.Get(key); object != nil && o.isOwn(object) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, workspaces.Key.Compare)
	return keys, true
}

func isIn(endpoints []*endpointSync, index workspaces.IndexKey) bool {
	return slices.ContainsFunc(endpoints, func(w *endpointSync) bool {
		store := w.store()
		return store == nil || store.HasIndex(index)
	})
}

// isOwn reports whether a copy certainly belongs to this publication. Several publications may have copies of one kind; a copy without
// the label of its resource may belong to any of them.
func (o *orphans) isOwn(object metav1.Object) bool {
	return object.GetLabels()[publication.LabelRemoteResource] != "" && syncer.BelongsTo(object, o.workspaceResource)
}

// report updates the metric, and emits an event and requeues the publication when the number of orphans changes.
func (o *orphans) report(keys []workspaces.Key) {
	o.mu.Lock()
	before := len(o.keys)
	o.keys = keys
	o.mu.Unlock()
	orphanedCopies.WithLabelValues(o.publication.Object.GetName()).Set(float64(len(keys)))
	if len(keys) == before {
		return
	}
	if len(keys) > before {
		o.recorder.Eventf(o.publication.Object, nil, corev1.EventTypeWarning, reasonOrphaned, "FindOrphans", orphansMessage(len(keys), keys[0]))
	}
	o.changed()
}

func (o *orphans) forget() {
	orphanedCopies.DeleteLabelValues(o.publication.Object.GetName())
}

// delete deletes orphans that confirm has just returned.
func (o *orphans) delete(ctx context.Context, keys []workspaces.Key) {
	for _, key := range keys {
		if err := o.deleteOrphan(ctx, key); err != nil {
			log.FromContext(ctx).Error(err, "Could not delete an orphan", "namespace", key.Namespace, "name", key.Name)
			o.trigger()
		}
	}
}

func orphansMessage(count int, first workspaces.Key) string {
	return fmt.Sprintf("%d copies have no source any more, for example %s: their workspaces were unbound or deleted. "+
		"`sync-agent cleanup` lists them, and removes them with --delete.", count, first)
}
