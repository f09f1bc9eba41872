package replica

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// outage is the time in which streams are closed. It is told of in one line when it begins and one when it ends.
type outage struct {
	mu sync.Mutex
	// since is when each of the streams that are closed was last open.
	since map[schema.GroupResource]time.Time
	began time.Time
}

func (o *outage) begin(ctx context.Context, resource schema.GroupResource, reason error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since == nil {
		o.since = map[schema.GroupResource]time.Time{}
	}
	if _, known := o.since[resource]; known {
		return
	}
	if len(o.since) == 0 {
		o.began = time.Now()
		klog.FromContext(ctx).Info("The cache server does not answer: what other shards have is not brought up to date until it does", "resource", resource, "reason", reason)
	}
	o.since[resource] = time.Now()
}

// end returns which other streams are closed, if this one was.
func (o *outage) end(ctx context.Context, resource schema.GroupResource) []schema.GroupResource {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.since[resource]; !known {
		return nil
	}
	delete(o.since, resource)
	if len(o.since) == 0 {
		klog.FromContext(ctx).Info("The cache server answers again", "after", time.Since(o.began).Round(time.Millisecond))
	}
	return slices.Collect(maps.Keys(o.since))
}

// lasts tells whether any stream is closed.
func (o *outage) lasts() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.since) > 0
}

// longest returns for how long the stream that is closed for longest has been.
func (o *outage) longest() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	var longest time.Duration
	for _, since := range o.since {
		longest = max(longest, time.Since(since))
	}
	return longest
}
