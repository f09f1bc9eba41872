package workspacelimits

import (
	"context"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// source returns the source of changes for a controller. Its requests are for the LogicalClusters with limits: first all, then
// those whose count or limits have changed.
func (t *Tracker) source() controller.Source { return t.changes.Source(workspaceCounts) }

// listEntries returns requests for all LogicalClusters with limits.
func (t *Tracker) listEntries() []controller.Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	return requestsFor(t.entries)
}

// flush delivers what has changed to the watches, and counts again if the counts may be wrong.
func (t *Tracker) flush(context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.recount {
		t.recount = false
		t.restartWatch()
	}
	if len(t.changed) > 0 {
		t.changes.Add(requestsFor(t.changed)...)
		clear(t.changed)
	}
}

// requestsFor returns requests for the LogicalClusters of the keys of a map.
func requestsFor[V any](clusters map[logicalcluster.Name]V) []controller.Request {
	var requests []controller.Request
	for cluster := range clusters {
		requests = append(requests, controller.Request{ClusterName: cluster, Name: corev1alpha1.LogicalClusterName})
	}
	return requests
}
