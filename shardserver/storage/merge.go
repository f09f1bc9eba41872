package storage

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// stream is a watch that one goroutine feeds.
type stream struct {
	events chan watch.Event
	cancel context.CancelFunc
}

func (s *stream) ResultChan() <-chan watch.Event { return s.events }
func (s *stream) Stop()                          { s.cancel() }

// send hands an event on. It returns false when nobody will read it any more.
func (s *stream) send(ctx context.Context, event watch.Event) bool {
	select {
	case s.events <- event:
		return true
	case <-ctx.Done():
		return false
	}
}

// newQuiet returns a watch of nothing: the bookmark that says so, and silence.
func newQuiet(ctx context.Context) watch.Interface {
	ctx, cancel := context.WithCancel(ctx)
	quiet := &stream{events: make(chan watch.Event, 1), cancel: cancel}
	quiet.events <- initialEventsEnd()
	context.AfterFunc(ctx, func() { close(quiet.events) })
	return quiet
}

// initialEventsEnd is the bookmark after which a watch only tells of changes.
func initialEventsEnd() watch.Event {
	return watch.Event{Type: watch.Bookmark, Object: &metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}},
	}}
}

// merge returns the events of two watches, with one bookmark when both have sent theirs. It ends when one of them does.
func merge(ctx context.Context, one, other watch.Interface) watch.Interface {
	ctx, cancel := context.WithCancel(ctx)
	merged := &stream{events: make(chan watch.Event), cancel: cancel}
	go func() {
		defer close(merged.events)
		defer cancel()
		defer one.Stop()
		defer other.Stop()
		missing := map[watch.Interface]bool{one: true, other: true}
		for {
			from := one
			var event watch.Event
			var open bool
			select {
			case event, open = <-one.ResultChan():
			case event, open = <-other.ResultChan():
				from = other
			case <-ctx.Done():
				return
			}
			if !open {
				return
			}
			if event.Type == watch.Bookmark {
				if !missing[from] {
					continue
				}
				delete(missing, from)
				if len(missing) > 0 {
					continue
				}
			}
			if !merged.send(ctx, event) {
				return
			}
		}
	}()
	return merged
}
