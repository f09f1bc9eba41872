package storage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/clock"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// forgetting is the storage below a watch cache, and makes that forget. A watch cache keeps events, with their objects, for
// 75 seconds at least; but what it kept of a rush it gives back only when as many events have come again, which may be
// never. So when a resource has become quiet, its watch has events that nobody sees. At once they take the room that is left,
// and nothing goes; when they have become old, a few more make the watch cache full, and one each halves its room. They
// replace what is older than 75 seconds, which no watch could rely on before.
//
// These events are of an object whose key lies outside of all that can be read or watched. It has a mark for a logical cluster, which
// no object of a tenant can have, because storage stamps those. To be dropped once the watch cache forgets by itself.
type forgetting struct {
	storage.Interface
	newObject func() runtime.Object
	clock     clock.WithTicker

	mu      sync.Mutex
	history *history
	// filling tells that events of ours are to take the room that is left, but for so many events as there are to spare.
	filling bool
	spare   int
	// prepared is when that was begun the last time while there were fresh events.
	prepared time.Time
}

// nobodys is the mark of the object that events of ours are about, and its key in the watch cache: no prefix of a resource is
// a prefix of that.
const nobodys = "~nobody's"

// How often is looked whether there is something to forget, and how many events of ours there are at a time: watchers of
// all logical clusters have to pass them by.
const (
	forgetEvery  = 5 * time.Second
	forgetAtOnce = 128
	forgetPause  = 10 * time.Millisecond
)

// A rush is over when hardly anything has come for a while. Room is spared then for some events of tenants: if more come, the
// room is doubled as for events of theirs. That is once for a rush, and few enough are missing later to halve it by and by.
const (
	overAfter = 10 * time.Second
	spared    = leastHistory / 2
)

// late is by how much the watch cache may be behind its watch.
const late = 5 * time.Second

// worthwhile is the room for events that is left to a watch cache as it is: a few hundred kilobytes.
const worthwhile = 4 * leastHistory

func newForgetting(inner storage.Interface, newObject func() runtime.Object, clock clock.WithTicker) *forgetting {
	return &forgetting{Interface: inner, newObject: newObject, clock: clock, history: newHistory()}
}

// GetList implements storage.Interface. Only the reflector in the watch cache lists here, to begin anew.
func (f *forgetting) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	f.mu.Lock()
	f.history.clear()
	f.filling = false
	f.mu.Unlock()
	return f.Interface.GetList(ctx, key, opts, list)
}

// Watch implements storage.Interface.
func (f *forgetting) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	inner, err := f.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &forgetful{stream: stream{events: make(chan watch.Event, 100), cancel: cancel}, forgetting: f, seen: opts.ResourceVersion}
	go s.run(ctx, inner)
	return s, nil
}

// forgetful is a watch with events that nobody sees.
type forgetful struct {
	stream
	forgetting *forgetting
	// seen is the resource version that the watch has come to.
	seen string
}

// run hands events on until one of both sides ends.
func (s *forgetful) run(ctx context.Context, inner watch.Interface) {
	defer close(s.events)
	defer inner.Stop()
	look := s.forgetting.clock.NewTicker(forgetEvery)
	defer look.Stop()
	var more <-chan time.Time // while events of ours are to come
	for {
		select {
		case event, ok := <-inner.ResultChan():
			if !ok || !s.pass(ctx, event) {
				return
			}
		case <-look.C():
			more = s.forget(ctx)
		case <-more:
			more = s.forget(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// pass hands an event on, and returns false when nobody wants it.
func (s *forgetful) pass(ctx context.Context, event watch.Event) bool {
	if event.Type != watch.Error {
		if accessor, err := meta.Accessor(event.Object); err == nil {
			s.seen = accessor.GetResourceVersion()
		}
	}
	if event.Type != watch.Error && event.Type != watch.Bookmark {
		s.forgetting.count(1)
	}
	return s.send(ctx, event)
}

// count tells the history of events.
func (f *forgetting) count(events int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range events {
		f.history.add(f.clock.Now())
	}
}

// forget sends some events of ours if the watch cache needs them to forget, and returns when to go on, nil for not now.
func (s *forgetful) forget(ctx context.Context) <-chan time.Time {
	pairs := s.forgetting.wanted()
	if pairs == 0 {
		return nil
	}
	object, err := s.forgetting.nobodys(s.seen)
	if err != nil {
		return nil // it is not for this resource; the watch cache does what it does without us
	}
	for range pairs {
		for _, what := range []watch.EventType{watch.Added, watch.Deleted} {
			if !s.send(ctx, watch.Event{Type: what, Object: object}) {
				return nil
			}
			s.forgetting.count(1)
		}
	}
	return s.forgetting.clock.After(forgetPause)
}

// wanted returns how many pairs of events the watch cache needs now.
func (f *forgetting) wanted() (pairs int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	switch {
	case len(f.history.times) <= worthwhile:
		f.filling = false
	case f.history.shrinks(now.Add(-late)):
		return 1
	case f.filling: // goes on whatever comes beside
	case f.history.quiet(now, freshFor):
		f.filling, f.spare = true, 0
	case f.history.quiet(now, overAfter) && now.Sub(f.prepared) > freshFor+late:
		f.filling, f.spare, f.prepared = true, spared, now
	}
	f.filling = f.filling && f.history.missing() > f.spare
	if !f.filling {
		return 0
	}
	return min(forgetAtOnce, f.history.missing()-f.spare+1) / 2
}

// nobodys returns the object of events that nobody sees, at a resource version.
func (f *forgetting) nobodys(resourceVersion string) (runtime.Object, error) {
	object := f.newObject()
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	accessor.SetAnnotations(map[string]string{logicalcluster.AnnotationKey: nobodys})
	accessor.SetResourceVersion(resourceVersion)
	if !isNobodys(object) || resourceVersion == "" || resourceVersion == "0" {
		return nil, fmt.Errorf("%T cannot be nobody's at resource version %q", object, resourceVersion)
	}
	return object, nil
}

func isNobodys(object runtime.Object) bool {
	accessor, err := meta.Accessor(object)
	return err == nil && logicalcluster.Of(accessor).String() == nobodys
}
