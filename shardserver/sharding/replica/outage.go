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

// outage tracks which reflectors are disconnected. The start and the end of an outage are logged once.
type outage struct {
	mu sync.Mutex
	// closedSince is when each disconnected reflector was disconnected.
	closedSince map[schema.GroupResource]time.Time
	startedAt   time.Time
}

// disconnected records that a reflector is disconnected.
func (o *outage) disconnected(ctx context.Context, resource schema.GroupResource, reason error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closedSince == nil {
		o.closedSince = map[schema.GroupResource]time.Time{}
	}
	if _, known := o.closedSince[resource]; known {
		return
	}
	if len(o.closedSince) == 0 {
		o.startedAt = time.Now()
		klog.FromContext(ctx).Info("The cache server is unavailable: objects of other shards are not updated until it is back", "resource", resource, "err", reason)
	}
	o.closedSince[resource] = time.Now()
}

// connected returns which other reflectors are disconnected, if this one was.
func (o *outage) connected(ctx context.Context, resource schema.GroupResource) []schema.GroupResource {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.closedSince[resource]; !known {
		return nil
	}
	delete(o.closedSince, resource)
	if len(o.closedSince) == 0 {
		klog.FromContext(ctx).Info("The cache server is available again", "after", time.Since(o.startedAt).Round(time.Millisecond))
	}
	return slices.Collect(maps.Keys(o.closedSince))
}

// ongoing returns whether any reflector is disconnected.
func (o *outage) ongoing() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.closedSince) > 0
}

// longest returns the time since the first of the disconnected reflectors was disconnected.
func (o *outage) longest() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	var longest time.Duration
	for _, closedSince := range o.closedSince {
		longest = max(longest, time.Since(closedSince))
	}
	return longest
}
