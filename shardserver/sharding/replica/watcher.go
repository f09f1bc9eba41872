package replica

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// maxPending is how many events a watcher may fall behind before its watch ends.
const maxPending = 10_000

// watcher is one watch of a store. It implements watch.Interface.
type watcher struct {
	ctx     context.Context
	cancel  context.CancelFunc
	results chan watch.Event
	// onStop removes the watcher from its store.
	onStop func(*watcher)

	mu      sync.Mutex
	pending []watch.Event
	// notify signals that pending is not empty.
	notify chan struct{}
}

func newWatcher(ctx context.Context, onStop func(*watcher)) *watcher {
	ctx, cancel := context.WithCancel(ctx)
	return &watcher{ctx: ctx, cancel: cancel, results: make(chan watch.Event), onStop: onStop, notify: make(chan struct{}, 1)}
}

func (w *watcher) ResultChan() <-chan watch.Event { return w.results }
func (w *watcher) Stop()                          { w.cancel() }

// add queues an event without blocking.
func (w *watcher) add(event watch.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) >= maxPending {
		w.cancel()
		return
	}
	w.pending = append(w.pending, event)
	select {
	case w.notify <- struct{}{}:
	default:
	}
}

// run sends the initial objects, a bookmark if they are complete, and then events until the watch ends.
func (w *watcher) run(initial []runtime.Object, complete bool) {
	go func() {
		defer close(w.results)
		defer w.onStop(w)
		defer w.cancel()
		for _, obj := range initial {
			if !w.send(watch.Event{Type: watch.Added, Object: obj}) {
				return
			}
		}
		initial = nil
		if complete && !w.send(watch.Event{Type: watch.Bookmark, Object: &metav1.PartialObjectMetadata{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}},
		}}) {
			return
		}
		for {
			select {
			case <-w.ctx.Done():
				return
			case <-w.notify:
			}
			w.mu.Lock()
			events := w.pending
			w.pending = nil
			w.mu.Unlock()
			for _, event := range events {
				if !w.send(event) {
					return
				}
			}
		}
	}()
}

func (w *watcher) send(event watch.Event) bool {
	select {
	case w.results <- event:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// watch returns a watch of the store.
func (s *store) watch(ctx context.Context) watch.Interface {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := newWatcher(ctx, func(w *watcher) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, w)
	})
	s.watchers[w] = struct{}{}
	w.run(s.listForWatch(), true)
	return w
}
