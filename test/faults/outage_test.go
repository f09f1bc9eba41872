package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/sharded"
)

// publishInterval is the interval at which an object is written that must be replicated, during an outage.
const publishInterval = 500 * time.Millisecond

// testCacheOutage kills the cache server under load. No request of a tenant fails in the meantime, the shards report the lag, and after
// its return the cache has every export that was created during the outage, and none that was deleted.
func (*processFaults) testCacheOutage(f *processFaults) {
	outage := scaled(6*time.Second, 10*time.Minute)
	before, acknowledged := f.countFailures(), f.acknowledgedCounts()
	f.createExport("published-before")
	f.waitForPublished(map[string]bool{"published-before": true})
	f.Kill(f.T, sharded.CacheServer)
	began := time.Now()
	published := f.publishFor(outage)
	f.expectLag("write", outage)
	f.expectLag("read", outage)
	f.expectServing(before, root, alpha, beta)
	for shard, from := range acknowledged {
		f.Logf("%s: %d writes acknowledged, %d failed during the outage of %s", shard, f.writers[shard].acknowledgedCount()-from, f.writers[shard].failureCount()-before[shard], time.Since(began).Round(time.Second))
	}

	f.restart(sharded.CacheServer)
	f.WaitReady(f.T, sharded.CacheServer)
	returned := time.Now()
	f.waitForPublished(published)
	f.Logf("%d exports created or deleted meanwhile were in the cache, or gone, %s after its return", len(published), time.Since(returned).Round(time.Millisecond))
	for _, shard := range f.Shards() {
		for _, direction := range []string{"read", "write"} {
			shardtesting.EventuallyWithin(f.T, 2*time.Minute, shard+" has no lag", func(ctx context.Context) error {
				if lag, err := f.lag(ctx, shard, direction); err != nil || lag > 1 {
					return fmt.Errorf("%s: %v s, %w", direction, lag, err)
				}
				return nil
			})
		}
	}
	f.Logf("no lag %s after its return", time.Since(returned).Round(time.Millisecond))
	f.bind(f.createWorkspace("after-the-outage", beta))
	f.expectServing(before, root, alpha, beta)
}

func (e *env) acknowledgedCounts() map[string]int {
	counts := map[string]int{}
	for shard, w := range e.writers {
		counts[shard] = w.acknowledgedCount()
	}
	return counts
}

// createExport creates an export without resources on alpha.
func (e *env) createExport(name string) {
	e.Helper()
	export := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := e.admin.Create(shardtesting.In(e.Context(), e.provider), export); err != nil {
		e.Fatal(err)
	}
}

// publishFor creates exports for a time, and deletes every third again. It returns those names, and whether they exist.
func (e *env) publishFor(duration time.Duration) map[string]bool {
	e.Helper()
	published := map[string]bool{"published-before": false}
	export := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "published-before"}}
	if err := e.admin.Delete(shardtesting.In(e.Context(), e.provider), export); err != nil {
		e.Fatal(err)
	}
	ticker := time.NewTicker(publishInterval)
	defer ticker.Stop()
	for end := time.Now().Add(duration); time.Now().Before(end); <-ticker.C {
		name := fmt.Sprint("published-", len(published))
		e.createExport(name)
		published[name] = len(published)%3 != 0
		if !published[name] {
			export := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if err := e.admin.Delete(shardtesting.In(e.Context(), e.provider), export); err != nil {
				e.Fatal(err)
			}
		}
	}
	return published
}

// waitForPublished waits until exactly those of the exports are in the cache that exist.
func (e *env) waitForPublished(published map[string]bool) {
	e.Helper()
	config := e.Masters(e.T, sharded.CacheServer)
	shardtesting.EventuallyWithin(e.T, 2*time.Minute, "the cache has the exports", func(context.Context) error {
		response, body := shardtesting.Send(e.T, config, http.MethodGet, "/services/cache/shards/*/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports", "")
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal([]byte(body), &list); err != nil || response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %w", response.Status, err)
		}
		found := map[string]bool{}
		for i := range list.Items {
			found[list.Items[i].Name] = true
		}
		for name, exists := range published {
			if found[name] != exists {
				return fmt.Errorf("of %s: got %t, want %t", name, found[name], exists)
			}
		}
		return nil
	})
}

// lag returns the replication lag of a shard, in seconds.
func (e *env) lag(ctx context.Context, shard, direction string) (float64, error) {
	return e.metric(ctx, shard, fmt.Sprintf("atoll_replication_lag_seconds{direction=%q", direction))
}

// expectLag checks that alpha reports most of the outage as its lag.
func (e *env) expectLag(direction string, outage time.Duration) {
	e.Helper()
	shardtesting.Eventually(e.T, "the lag is told", func(ctx context.Context) error {
		lag, err := e.lag(ctx, alpha, direction)
		if err == nil && lag < outage.Seconds()-5 {
			return fmt.Errorf("%s: %v s", direction, lag)
		}
		if err == nil {
			e.Logf("atoll_replication_lag_seconds{direction=%q} of alpha: %.0f", direction, lag)
		}
		return err
	})
}
