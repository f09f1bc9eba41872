package storage

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// stream is a watch whose events one goroutine sends.
type stream struct {
	events chan watch.Event
	cancel context.CancelFunc
}

func (s *stream) ResultChan() <-chan watch.Event { return s.events }
func (s *stream) Stop()                          { s.cancel() }

// send sends an event. It returns false if the watch was stopped.
func (s *stream) send(ctx context.Context, event watch.Event) bool {
	select {
	case s.events <- event:
		return true
	case <-ctx.Done():
		return false
	}
}

// newEmptyWatch returns a watch without objects: it sends the bookmark after the initial events and nothing else.
func newEmptyWatch(ctx context.Context) watch.Interface {
	ctx, cancel := context.WithCancel(ctx)
	empty := &stream{events: make(chan watch.Event, 1), cancel: cancel}
	empty.events <- initialEventsEnd()
	context.AfterFunc(ctx, func() { close(empty.events) })
	return empty
}

// initialEventsEnd returns the bookmark that follows the initial events of a watch.
func initialEventsEnd() watch.Event {
	return watch.Event{Type: watch.Bookmark, Object: &metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}},
	}}
}

// merge returns the events of a local and a remote watch: the initial events of both, the local watch's bookmark when
// both have sent theirs, then changes. It ends when one of them does.
func merge(ctx context.Context, local, remote watch.Interface) watch.Interface {
	ctx, cancel := context.WithCancel(ctx)
	merged := &stream{events: make(chan watch.Event), cancel: cancel}
	go func() {
		defer close(merged.events)
		defer cancel()
		defer local.Stop()
		defer remote.Stop()
		bookmark, ok := merged.forwardInitial(ctx, local)
		if !ok {
			return
		}
		if _, ok := merged.forwardInitial(ctx, remote); !ok || !merged.send(ctx, bookmark) {
			return
		}
		merged.forwardChanges(ctx, local, remote)
	}()
	return merged
}

// forwardInitial sends the initial events of a watch up to its bookmark, which it returns. ok is false if there was
// none.
func (s *stream) forwardInitial(ctx context.Context, from watch.Interface) (bookmark watch.Event, ok bool) {
	for {
		select {
		case event, open := <-from.ResultChan():
			switch {
			case !open:
				return event, false
			case event.Type == watch.Bookmark:
				return event, true
			case !s.send(ctx, event) || event.Type == watch.Error:
				return event, false
			}
		case <-ctx.Done():
			return watch.Event{}, false
		}
	}
}

// forwardChanges sends the changes of two watches until one ends. Later bookmarks of the remote watch are dropped: its
// resource versions are those of other shards.
func (s *stream) forwardChanges(ctx context.Context, local, remote watch.Interface) {
	for {
		var event watch.Event
		var open bool
		select {
		case event, open = <-local.ResultChan():
		case event, open = <-remote.ResultChan():
			if open && event.Type == watch.Bookmark {
				continue
			}
		case <-ctx.Done():
			return
		}
		if !open || !s.send(ctx, event) {
			return
		}
	}
}
