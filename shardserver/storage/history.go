package storage

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/clock"
)

// history makes a watch cache let go of the events of a rush that is over. The stock cache keeps what a rush made it
// grow to until as many new events have come, which may be never: ten thousand deleted workspaces would stay in memory,
// every version of every object of them. Here the place of old events is taken by fillers, news of an object that lies
// outside of every key that is ever listed or watched. The cache's own rules do the rest: they drop the oldest first,
// never one of the window that it promises to keep, and shrink what holds only old ones.
type history struct {
	storage.Interface
	clock   clock.WithTicker
	newFunc func() runtime.Object
	// period is how often to look, and how old an event may become at least.
	period time.Duration

	mu     sync.Mutex
	events ring
	// filler is the object of the fillers that are being sent.
	filler atomic.Pointer[runtime.Object]
}

const (
	// fillerKey lies below the prefix of no resource.
	fillerKey = "/~"
	// fillersAtOnce are sent every fillerPause, so that watchers of all clusters keep up with dropping them.
	fillersAtOnce = 50
	fillerPause   = 5 * time.Millisecond
)

// newHistory wraps the storage below a watch cache whose window and etcd's compaction are given. Zero compaction means
// that somebody else compacts.
func newHistory(inner storage.Interface, clock clock.WithTicker, newFunc func() runtime.Object, window, compaction time.Duration) *history {
	return &history{Interface: inner, clock: clock, newFunc: newFunc, period: max(compaction, window), events: newRing(window)}
}

// key is a key function that knows fillers.
func (h *history) key(of func(runtime.Object) (string, error)) func(runtime.Object) (string, error) {
	return func(obj runtime.Object) (string, error) {
		if h.isFiller(obj) {
			return fillerKey, nil
		}
		return of(obj)
	}
}

// attrs is a function of attributes that knows fillers.
func (h *history) attrs(of storage.AttrFunc) storage.AttrFunc {
	return func(obj runtime.Object) (labels.Set, fields.Set, error) {
		if h.isFiller(obj) {
			return nil, nil, nil
		}
		return of(obj)
	}
}

func (h *history) isFiller(obj runtime.Object) bool {
	filler := h.filler.Load()
	return filler != nil && *filler == obj
}

// GetList implements storage.Interface. The watch cache lists when it begins anew, without events.
func (h *history) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	h.mu.Lock()
	h.events.clear()
	h.mu.Unlock()
	return h.Interface.GetList(ctx, key, opts, list)
}

// Watch implements storage.Interface.
func (h *history) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	inner, err := h.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	s := &stream{history: h, inner: inner, events: make(chan watch.Event), done: make(chan struct{})}
	s.revision, _ = strconv.ParseUint(opts.ResourceVersion, 10, 64)
	go s.run()
	return s, nil
}

// stream is one watch of the watch cache.
type stream struct {
	history *history
	inner   watch.Interface
	events  chan watch.Event
	done    chan struct{}
	stop    sync.Once
	// revision is the last that was seen.
	revision uint64
}

// ResultChan implements watch.Interface.
func (s *stream) ResultChan() <-chan watch.Event { return s.events }

// Stop implements watch.Interface.
func (s *stream) Stop() {
	s.stop.Do(func() {
		close(s.done)
		s.inner.Stop()
	})
}

// run forwards events, and sends fillers from time to time, until either side ends.
func (s *stream) run() {
	defer close(s.events)
	tick := s.history.clock.NewTicker(s.history.period)
	defer tick.Stop()
	missing := 0
	var next <-chan time.Time
	for ok := true; ok; {
		select {
		case <-s.done:
			return
		case event, more := <-s.inner.ResultChan():
			ok = more && s.forward(event)
		case <-tick.C():
			missing = s.history.missing()
			next = nil
		case <-next:
			ok = s.fill(min(missing, fillersAtOnce))
			missing, next = missing-fillersAtOnce, nil
		}
		if missing > 0 && next == nil {
			next = s.history.clock.After(fillerPause)
		}
	}
}

func (s *stream) forward(event watch.Event) bool {
	if event.Type != watch.Error {
		if revision, err := (storage.APIObjectVersioner{}).ObjectResourceVersion(event.Object); err == nil {
			s.revision = revision
		}
		if event.Type != watch.Bookmark {
			s.history.add(false)
		}
	}
	return s.send(event)
}

func (s *stream) send(event watch.Event) bool {
	select {
	case s.events <- event:
		return true
	case <-s.done:
		return false
	}
}

// fill sends n fillers, or two if that is more, as news of an object that comes and goes. They carry the last revision:
// who resumes a watch from it has seen them.
func (s *stream) fill(n int) bool {
	filler := s.history.newFunc()
	if err := (storage.APIObjectVersioner{}).UpdateObject(filler, s.revision); err != nil || s.revision == 0 {
		return true
	}
	s.history.filler.Store(&filler)
	for i := range max(n, 2) {
		kind := watch.Modified
		switch i {
		case 0:
			kind = watch.Added
		case max(n, 2) - 1:
			kind = watch.Deleted
		}
		s.history.add(true)
		if !s.send(watch.Event{Type: kind, Object: filler}) {
			return false
		}
	}
	return true
}

func (h *history) add(filler bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events.add(h.clock.Now(), filler)
}

func (h *history) missing() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events.missing(h.clock.Now(), h.period)
}
