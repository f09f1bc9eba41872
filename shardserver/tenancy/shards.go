package tenancy

import (
	"context"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// mapShardReport maps the report of a shard that accepts logical clusters again to the unscheduled workspaces.
func (c *workspaceController) mapShardReport(event watch.Event) []controller.Request {
	report, ok := event.Object.(*shardingv1alpha1.ShardReport)
	if !ok {
		return nil
	}
	if event.Type == watch.Deleted {
		c.scheduler.Remove(report.Name)
		return nil
	}
	if !c.scheduler.ObserveReport(report) {
		return nil
	}
	all, err := c.workspaces.List(logicalcluster.With(context.Background(), logicalcluster.Wildcard), "", nil)
	if err != nil {
		klog.ErrorS(err, "Failed to list unscheduled workspaces", "shard", report.Name)
		return nil
	}
	var keys []controller.Request
	for _, workspace := range all {
		if workspace.Spec.Cluster == "" && workspace.Spec.Mount == nil {
			keys = append(keys, controller.Request{ClusterName: logicalcluster.Of(workspace), Name: workspace.Name})
		}
	}
	return keys
}

// choose returns the function that selects a shard for an unscheduled workspace, by the current report of this shard.
func (c *workspaceController) choose(own shardingv1alpha1.ShardReportSpec) chooseFunc {
	return func(all []*corev1alpha1.Shard, selector labels.Selector) (*corev1alpha1.Shard, error) {
		shard, err := c.scheduler.Choose(all, selector, own, "")
		if err != nil {
			return nil, err
		}
		if _, refused := validateShard(shard); refused != nil {
			c.scheduler.Cancel(shard.Name) // the caller refuses it
		}
		return shard, nil
	}
}
