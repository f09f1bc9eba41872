package workspacelimits

import (
	"context"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// watcher has the logical clusters whose count or limits have changed, each once, until a watch delivers them.
type watcher struct {
	pending map[logicalcluster.Name]struct{}
	ready   background.Signal
}

// source returns the source of changes for a controller. Its requests are for the LogicalClusters with limits.
func (t *Tracker) source() controller.Source {
	return controller.Source{Resource: workspaceCounts, MapFunc: controller.RequestForObject, WatchFunc: t.watch}
}

// watch returns a watch of the entries: first all, then those that have changed.
func (t *Tracker) watch(ctx context.Context) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &watcher{pending: map[logicalcluster.Name]struct{}{}, ready: background.NewSignal()}
	t.mu.Lock()
	initial := slices.Collect(maps.Keys(t.entries))
	t.watchers[w] = struct{}{}
	t.mu.Unlock()
	events := make(chan watch.Event)
	go func() {
		defer close(events)
		defer t.unsubscribe(w)
		if !sendAll(ctx, events, watch.Added, initial) || !send(ctx, events, bookmark()) {
			return
		}
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.ready:
			}
			if !sendAll(ctx, events, watch.Modified, t.take(w)) {
				return
			}
		}
	}()
	return &stream{events, cancel}, nil
}

// flush delivers what has changed to the watches, and counts again if the counts may be wrong.
func (t *Tracker) flush(context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.recount {
		t.recount = false
		t.restartWatch()
	}
	if len(t.changed) == 0 {
		return
	}
	for w := range t.watchers {
		maps.Copy(w.pending, t.changed)
		w.ready.Set()
	}
	clear(t.changed)
}

func (t *Tracker) take(w *watcher) []logicalcluster.Name {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := slices.Collect(maps.Keys(w.pending))
	clear(w.pending)
	return names
}

func (t *Tracker) unsubscribe(w *watcher) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.watchers, w)
}

func bookmark() watch.Event {
	return watch.Event{Type: watch.Bookmark, Object: &metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}},
	}}
}

func sendAll(ctx context.Context, events chan<- watch.Event, kind watch.EventType, names []logicalcluster.Name) bool {
	for _, name := range names {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: corev1alpha1.LogicalClusterName, Annotations: map[string]string{logicalcluster.AnnotationKey: name.String()},
		}}
		if !send(ctx, events, watch.Event{Type: kind, Object: object}) {
			return false
		}
	}
	return true
}

func send(ctx context.Context, events chan<- watch.Event, event watch.Event) bool {
	select {
	case events <- event:
		return true
	case <-ctx.Done():
		return false
	}
}

type stream struct {
	events chan watch.Event
	cancel context.CancelFunc
}

func (s *stream) Stop()                          { s.cancel() }
func (s *stream) ResultChan() <-chan watch.Event { return s.events }
