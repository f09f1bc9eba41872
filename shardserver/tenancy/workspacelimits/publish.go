package workspacelimits

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/publisher"
)

// CountsSource publishes how many Workspaces this shard stores below each logical cluster with limits, whichever shard that
// one is on.
func (t *Tracker) CountsSource() publisher.Source {
	return publisher.Source{Resource: workspaceCounts, Inputs: []controller.Source{t.source()}, Desired: t.desiredCount}
}

// desiredCount returns the count to publish, or nil for none.
func (t *Tracker) desiredCount(_ context.Context, key controller.Request) (runtime.Object, error) {
	stored, counted := t.stored(key.ClusterName)
	switch {
	case !counted, stored == 0 && t.clusters.CheckSynced() != nil:
		return nil, publisher.ErrUnchanged // the limit may be on another shard that is not known yet
	case stored == 0 || key.Name != corev1alpha1.LogicalClusterName:
		return nil, nil
	}
	return &shardingv1alpha1.WorkspaceCount{
		ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName},
		Spec:       shardingv1alpha1.WorkspaceCountSpec{Workspaces: stored},
	}, nil
}

// stored returns how many Workspaces this shard stores in a logical cluster with limits and below: 0 for one without
// limits. It returns false if they have not been counted yet.
func (t *Tracker) stored(cluster logicalcluster.Name) (number int64, counted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[cluster]
	if e == nil {
		return 0, true
	}
	return e.stored, e.isCounted()
}
