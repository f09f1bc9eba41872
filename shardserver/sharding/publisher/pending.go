package publisher

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
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

// recordSuccess and recordFailure track the objects that could not be written. The first failure and the last recovery
// are logged.
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
	if len(p.pending) == 0 {
		klog.FromContext(ctx).Info("Publishing objects of this shard fails, will retry", "resource", obj.resource, "key", obj.key, "reason", reason)
	}
	if _, exists := p.pending[obj]; !exists {
		p.pending[obj] = time.Now()
	}
}

// Lag returns how long the oldest object has been waiting to be published; 0 if none is.
func (p *Publisher) Lag() time.Duration {
	if !p.running.Load() {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var longest time.Duration
	for _, since := range p.pending {
		longest = max(longest, time.Since(since))
	}
	return longest
}
