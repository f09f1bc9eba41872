package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/atoll-dev/atoll/internal/reflector"
)

// server responds to lists and watches as a test defines, and records requests and the calls of the handler.
type server struct {
	list  func(options metav1.ListOptions) (runtime.Object, error)
	watch func(options metav1.ListOptions) (watch.Interface, error)

	mu    sync.Mutex
	calls []string
}

func (s *server) record(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

func (s *server) OnListStart()                          { s.record("start") }
func (s *server) OnListPage(objects []runtime.Object)   { s.record("page of %d", len(objects)) }
func (s *server) OnListDone(version string)             { s.record("done at %s", version) }
func (s *server) OnEvent(e watch.Event, version string) { s.record("%s at %s", e.Type, version) }
func (s *server) OnConnect()                            { s.record("connect") }
func (s *server) OnDisconnect(err error)                { s.record("disconnect: %v", err) }

// newConfig returns a config without noticeable backoff.
func (s *server) newConfig() reflector.Config {
	return reflector.Config{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
				s.record("list %q", options.Continue)
				return s.list(options)
			},
			WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
				s.record("watch from %s", options.ResourceVersion)
				return s.watch(options)
			},
		},
		Handler: s, PageSize: 2, Backoff: wait.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 1},
	}
}

// run runs a reflector until the log is at least as long as the wanted one, and compares both.
func (s *server) run(t *testing.T, r *reflector.Reflector, want ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	got := func() []string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Clone(s.calls)
	}
	for deadline := time.Now().Add(10 * time.Second); len(got()) < len(want) && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	cancel()
	<-done
	if log := got(); len(log) < len(want) || !slices.Equal(log[:len(want)], want) {
		t.Errorf("got %q\nwant %q", log, want)
	}
}

func newPage(version, next string, count int) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: version, Continue: next}}
	list.Items = make([]metav1.PartialObjectMetadata, count)
	return list
}

func newObject(version string) runtime.Object {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
}

// newWatch returns a watch of events, which ends after them.
func newWatch(events ...watch.Event) (watch.Interface, error) {
	w := watch.NewFakeWithChanSize(len(events), false)
	for _, event := range events {
		w.Action(event.Type, event.Object)
	}
	w.Stop()
	return w, nil
}

func TestPaginationAndResume(t *testing.T) {
	s := &server{}
	failed := false
	s.list = func(options metav1.ListOptions) (runtime.Object, error) {
		switch {
		case options.Limit != 2:
			return nil, errors.New("no page size")
		case options.Continue == "":
			return newPage("7", "second", 2), nil
		case !failed:
			failed = true
			return nil, errors.New("unavailable")
		}
		return newPage("7", "", 1), nil
	}
	s.watch = func(options metav1.ListOptions) (watch.Interface, error) {
		switch options.ResourceVersion {
		case "7":
			return newWatch(watch.Event{Type: watch.Added, Object: newObject("8")}, watch.Event{Type: watch.Bookmark, Object: newObject("9")})
		case "9":
			return nil, errors.New("connection refused")
		}
		return nil, fmt.Errorf("unexpected version %q", options.ResourceVersion)
	}
	s.run(t, reflector.New(s.newConfig()),
		`start`, `list ""`, `page of 2`, `list "second"`, `disconnect: unavailable`,
		`start`, `list ""`, `page of 2`, `list "second"`, `page of 1`, `done at 7`,
		`watch from 7`, `connect`, `ADDED at 8`, `BOOKMARK at 9`,
		`watch from 9`, `disconnect: connection refused`, `watch from 9`)
}

func TestRelistAfterExpiredResourceVersion(t *testing.T) {
	for name, expiry := range map[string]func() (watch.Interface, error){
		"as a response": func() (watch.Interface, error) { return nil, apierrors.NewResourceExpired("compacted") },
		"as an event": func() (watch.Interface, error) {
			return newWatch(watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired("compacted").ErrStatus})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{list: func(metav1.ListOptions) (runtime.Object, error) { return newPage("20", "", 0), nil }}
			want := []string{`watch from 5`}
			s.watch = func(options metav1.ListOptions) (watch.Interface, error) {
				if options.ResourceVersion == "5" {
					return expiry()
				}
				return watch.NewFake(), nil
			}
			if name == "as an event" {
				want = append(want, `connect`)
			}
			config := s.newConfig()
			config.ResourceVersion = "5"
			s.run(t, reflector.New(config), append(want, `start`, `list ""`, `page of 0`, `done at 20`, `watch from 20`)...)
		})
	}
}

func TestRetryNowAndRelist(t *testing.T) {
	s := &server{list: func(metav1.ListOptions) (runtime.Object, error) { return newPage("20", "", 0), nil }}
	config := s.newConfig()
	config.ResourceVersion = "5"
	config.Backoff = wait.Backoff{Duration: time.Hour}
	r := reflector.New(config)
	attempts := 0
	s.watch = func(options metav1.ListOptions) (watch.Interface, error) {
		attempts++
		switch {
		case attempts == 1:
			time.AfterFunc(20*time.Millisecond, r.RetryNow)
			return nil, errors.New("connection refused")
		case options.ResourceVersion == "5":
			time.AfterFunc(20*time.Millisecond, r.Relist)
			return watch.NewFake(), nil
		}
		return watch.NewFake(), nil
	}
	s.run(t, r, `watch from 5`, `disconnect: connection refused`, `watch from 5`, `connect`, `start`, `list ""`, `page of 0`, `done at 20`, `watch from 20`)
}
