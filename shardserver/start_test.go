package shardserver_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/atoll-dev/atoll/cacheserver/embedded"
	"github.com/atoll-dev/atoll/embeddedcache"
	"github.com/atoll-dev/atoll/shardserver"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestStartThatFails checks that a start that fails, or that is ended, returns an error and releases everything: the same
// directory, with its etcd, serves the next start.
func TestStartThatFails(t *testing.T) {
	directory := t.TempDir()
	start := func(ctx context.Context, newCache embedded.NewServerFunc) error {
		t.Helper()
		completed, err := shardtesting.Options(t, directory).Complete()
		if err != nil {
			t.Fatal(err)
		}
		server, err := shardserver.New(ctx, completed, newCache)
		if err == nil {
			ended, end := context.WithCancel(context.WithoutCancel(ctx)) // the deadline may have passed at the end of the start
			end()
			if err := server.Run(ended); err != nil {
				t.Errorf("ending a shard that has started: %v", err)
			}
		}
		return err
	}
	broken := errors.New("no cache today")
	err := start(t.Context(), func(context.Context, embedded.Config) (embedded.Server, error) { return nil, broken })
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "embedded cache") {
		t.Errorf("a cache that cannot be created: %v", err)
	}
	ending, end := context.WithCancel(t.Context())
	err = start(ending, func(ctx context.Context, config embedded.Config) (embedded.Server, error) {
		end()
		return embeddedcache.New(ctx, config)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the context ends while the cache is created: %v", err)
	}
	for wait := time.Millisecond; ; wait *= 4 { // in different steps of the start, until one is complete
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		err := start(ctx, embeddedcache.New)
		cancel()
		if err == nil {
			break
		}
	}
	shardtesting.StartIn(t, directory)
}
