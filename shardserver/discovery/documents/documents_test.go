package documents_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/atoll-dev/atoll/shardserver/discovery/documents"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fixed(value string, bytes int64) func() (string, int64, error) {
	return func() (string, int64, error) { return value, bytes, nil }
}

func TestConcurrentCallersShareOneBuild(t *testing.T) {
	cache := documents.New[string, *string](documents.Limits{Count: 10, Bytes: 100, Builds: 2})
	started, proceed := make(chan struct{}), make(chan struct{})
	slow := func() (*string, int64, error) {
		close(started)
		<-proceed
		value := "document"
		return &value, 1, nil
	}
	got := make([]*string, 10)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() { got[i], _ = cache.Get(t.Context(), "key", slow) })
	}
	<-started
	close(proceed)
	all.Wait()
	for i := range got {
		if got[i] == nil || got[i] != got[0] {
			t.Errorf("caller %d got %v, the first %v", i, got[i], got[0])
		}
	}
	if built := cache.Stats().Built; built != 1 {
		t.Errorf("%d builds, want 1", built)
	}
}

func TestLRUEviction(t *testing.T) {
	for name, limits := range map[string]documents.Limits{
		"bounded by count": {Count: 2, Bytes: 1000, Builds: 1},
		"bounded by bytes": {Count: 100, Bytes: 25, Builds: 1},
	} {
		t.Run(name, func(t *testing.T) {
			cache := documents.New[string, string](limits)
			for _, key := range []string{"a", "b", "a", "c"} { // c evicts b
				if _, err := cache.Get(t.Context(), key, fixed(key, 10)); err != nil {
					t.Fatal(err)
				}
			}
			if stats := cache.Stats(); stats != (documents.Stats{Cached: 2, Bytes: 20, Built: 3}) {
				t.Errorf("got %+v", stats)
			}
			for _, key := range []string{"a", "c", "b"} {
				_, _ = cache.Get(t.Context(), key, fixed(key, 10))
			}
			if built := cache.Stats().Built; built != 4 {
				t.Errorf("%d builds, want 4: only b was evicted", built)
			}
		})
	}
}

func TestOversizedDocumentIsNotCached(t *testing.T) {
	cache := documents.New[string, string](documents.Limits{Count: 2, Bytes: 10, Builds: 1})
	if got, err := cache.Get(t.Context(), "large", fixed("large", 11)); got != "large" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if stats := cache.Stats(); stats.Cached != 0 || stats.Bytes != 0 {
		t.Errorf("got %+v", stats)
	}
}

func TestFailedBuildsAreNotCached(t *testing.T) {
	cache := documents.New[string, string](documents.Limits{Count: 2, Bytes: 10, Builds: 1})
	broken := errors.New("broken")
	if _, err := cache.Get(t.Context(), "key", func() (string, int64, error) { return "", 0, broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if _, err := cache.Get(t.Context(), "key", func() (string, int64, error) { panic("upset") }); err == nil || !strings.Contains(err.Error(), "upset") {
		t.Errorf("got %v", err)
	}
	if got, err := cache.Get(t.Context(), "key", fixed("well", 1)); got != "well" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestCanceledCallersDoNotBuild(t *testing.T) {
	cache := documents.New[string, string](documents.Limits{Count: 10, Bytes: 100, Builds: 1})
	started, proceed := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_, _ = cache.Get(t.Context(), "first", func() (string, int64, error) {
			close(started)
			<-proceed
			return "first", 1, nil
		})
	})
	<-started
	waitingCtx, cancelWaiting := context.WithCancel(t.Context())
	all.Go(func() { // any of the callers may build the document
		if _, err := cache.Get(waitingCtx, "second", fixed("second", 1)); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the canceled caller got %v", err)
		}
	})
	all.Go(func() {
		if got, err := cache.Get(t.Context(), "second", fixed("second", 1)); got != "second" || err != nil {
			t.Errorf("the waiting caller got %q, %v", got, err)
		}
	})
	canceledCtx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := cache.Get(canceledCtx, "third", fixed("third", 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller with a canceled context got %v", err)
	}
	if built := cache.Stats().Built; built != 1 {
		t.Errorf("%d concurrent builds, want 1", built)
	}
	cancelWaiting()
	close(proceed)
	all.Wait()
}
