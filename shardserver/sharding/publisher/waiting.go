package publisher

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// retry returns when to look again at an object, if it could not be written.
func (p *Publisher) retry(of item) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, waits := p.waiting[of]; waits {
		return unreachableRetry
	}
	return 0
}

// account notes what came of an attempt to publish an object.
func (p *Publisher) account(ctx context.Context, of item, err error) {
	switch {
	case err == nil:
		p.done(ctx, of)
	case !errors.Is(err, errSource) && !errors.Is(err, errAway):
		p.failed(ctx, of, err)
	}
}

// done and failed keep account of what could not be written. There is one line when that begins and one when it ends.
func (p *Publisher) done(ctx context.Context, of item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, waited := p.waiting[of]; !waited {
		return
	}
	delete(p.waiting, of)
	if len(p.waiting) == 0 {
		klog.FromContext(ctx).Info("Everything that other shards must know is published again")
	}
}

// failed is explained at done.
func (p *Publisher) failed(ctx context.Context, of item, reason error) {
	if apierrors.IsConflict(reason) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		klog.FromContext(ctx).Info("Publishing what other shards must know fails, will retry", "resource", of.resource, "key", of.key, "reason", reason)
	}
	if _, waits := p.waiting[of]; !waits {
		p.waiting[of] = time.Now()
	}
}

// Behind returns for how long the oldest object has been waiting to be published; 0 if none does.
func (p *Publisher) Lag() time.Duration {
	if !p.running.Load() {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var longest time.Duration
	for _, since := range p.waiting {
		longest = max(longest, time.Since(since))
	}
	return longest
}
