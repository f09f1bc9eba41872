package publisher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/cacheserver/client"
)

// retryDelay returns the delay before the next attempt for an object that could not be written, 0 for others.
func (p *Publisher) retryDelay(obj item) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, exists := p.pending[obj]; exists {
		return unreachableRetry
	}
	return 0
}

// recordResult records the result of an attempt to publish an object.
func (p *Publisher) recordResult(ctx context.Context, obj item, err error) {
	switch {
	case err == nil:
		p.recordSuccess(ctx, obj)
	case !errors.Is(err, errSource) && !errors.Is(err, errCacheUnavailable):
		p.recordFailure(ctx, obj, err)
	}
}

// pendingItem is an object that could not be written.
type pendingItem struct {
	since time.Time
	// refused is set if the cache refuses the object in its current state.
	refused bool
}

// recordSuccess and recordFailure track the objects that could not be written. The first failure, the last recovery and
// every refused object are logged.
func (p *Publisher) recordSuccess(ctx context.Context, obj item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, exists := p.pending[obj]; !exists {
		return
	}
	delete(p.pending, obj)
	if len(p.pending) == 0 {
		klog.FromContext(ctx).Info("All objects of this shard are published again")
	}
}

// recordFailure is described at recordSuccess.
func (p *Publisher) recordFailure(ctx context.Context, obj item, reason error) {
	if apierrors.IsConflict(reason) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	refused := client.IsRefused(reason)
	before, exists := p.pending[obj]
	switch {
	case refused && !before.refused:
		klog.FromContext(ctx).Error(reason, "The cache server refuses an object; other shards do not see its current state", "resource", obj.resource, "key", obj.key)
	case len(p.pending) == 0:
		klog.FromContext(ctx).Info("Publishing objects of this shard fails, will retry", "resource", obj.resource, "key", obj.key, "err", reason)
	}
	if !exists {
		before.since = time.Now()
	}
	p.pending[obj] = pendingItem{before.since, refused}
}

// Lag returns how long the oldest object has been waiting to be published; 0 if none is. Refused objects do not wait.
func (p *Publisher) Lag() time.Duration {
	if !p.running.Load() {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var longest time.Duration
	for _, obj := range p.pending {
		if !obj.refused {
			longest = max(longest, time.Since(obj.since))
		}
	}
	return longest
}

// Refused returns the number of objects that the cache refuses in their current state.
func (p *Publisher) Refused() int { return len(p.refusedItems()) }

func (p *Publisher) refusedItems() []item {
	if !p.running.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []item
	for obj, state := range p.pending {
		if state.refused {
			all = append(all, obj)
		}
	}
	return all
}

// RefusedMessage describes the refused objects in the condition of a shard; "" if there are none.
func (p *Publisher) RefusedMessage() string {
	all := p.refusedItems()
	if len(all) == 0 {
		return ""
	}
	names := make([]string, 0, len(all))
	for _, obj := range all {
		names = append(names, fmt.Sprintf("%s %q in logical cluster %s", obj.resource, obj.key.Name, obj.key.ClusterName))
	}
	slices.Sort(names)
	return fmt.Sprintf("The cache server refuses %d objects, so that other shards do not see their current state; make them smaller or delete them, such as %s", len(names), names[0])
}
