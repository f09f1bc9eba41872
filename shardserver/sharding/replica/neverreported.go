package replica

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
)

// neverReportedTimeout is how long a shard that has never reported keeps stores from being synced.
const neverReportedTimeout = 5 * time.Minute

// A registered shard that never starts would keep the informers of all new shards from being synced. It counts as
// complete if all of this holds for neverReportedTimeout without interruption:
//
//   - the root shard has recorded no report of it since it was registered. The record is in the Shard object in root's own
//     etcd, and survives the loss of a cache;
//   - the cache has no report of it, and the informer no other object, including those of the snapshot;
//   - the cache is available.
//
// Logical clusters are placed on shards that report, so such a shard has none. Objects from before its registration
// arrive like any new object when it publishes them. Informers that are synced already do not wait for new shards
// either.

// Reported returns whether root has ever received a report of a shard since it was registered.
func Reported(shard *corev1alpha1.Shard) bool { return len(shard.Status.Load) > 0 }

// reportedOnce is Reported for a Shard object in the cache. One that cannot be decoded counts as reported.
func reportedOnce(object *client.Object) bool {
	var shard struct {
		Status struct {
			Load map[string]any `json:"load"`
		} `json:"status"`
	}
	return json.Unmarshal(object.Raw, &shard) != nil || len(shard.Status.Load) > 0
}

// neverReportedTracker tracks since when shards have never reported.
type neverReportedTracker struct {
	mu     sync.Mutex
	since  map[string]time.Time
	logged map[string]bool
}

// hasTimedOut records whether a shard meets the conditions, and returns whether it has for the timeout, and whether
// this is the first call that returns so.
func (n *neverReportedTracker) hasTimedOut(shard string, eligible bool, timeout time.Duration) (timedOut, first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !eligible {
		delete(n.since, shard)
		delete(n.logged, shard)
		return false, false
	}
	if n.since == nil {
		n.since, n.logged = map[string]time.Time{}, map[string]bool{}
	}
	since, known := n.since[shard]
	if !known {
		n.since[shard] = time.Now()
		return false, false
	}
	if time.Since(since) < timeout {
		return false, false
	}
	first = !n.logged[shard]
	n.logged[shard] = true
	return true, first
}

// prune removes shards that are not registered: one that registers again starts from the beginning.
func (n *neverReportedTracker) prune(registered map[string]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for shard := range n.since {
		if _, exists := registered[shard]; !exists {
			delete(n.since, shard)
			delete(n.logged, shard)
		}
	}
}

// isNeverReported returns whether a registered shard counts as complete because it has never reported.
func (inf *Informer) isNeverReported(ctx context.Context, shard string, reported bool, at client.Position) bool {
	eligible := !reported && inf.shardTracker.hasNoReport(shard, at) && inf.quota.empty(shard) && !inf.outage.ongoing()
	timedOut, first := inf.neverReported.hasTimedOut(shard, eligible, inf.neverReportedTimeout)
	if first {
		klog.FromContext(ctx).Info("A registered shard has never reported: it does not keep the replica informer from being synced any more", "shard", shard, "since", inf.neverReportedTimeout)
	}
	return timedOut
}
