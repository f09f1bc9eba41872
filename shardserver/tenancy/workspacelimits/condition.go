package workspacelimits

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// Controller writes what is used of the limits into the condition WorkspacesWithinLimits of the LogicalClusters of this
// shard that have limits.
func (t *Tracker) Controller(writer client.Client) controller.Controller {
	return controller.Controller{
		Name: "workspace-limits",
		Sources: []controller.Source{
			t.source(),
			{Resource: workspaceCounts, Global: true, MapFunc: mapCount},
			{Resource: logicalClusters, MapFunc: mapCluster},
		},
		MaxConcurrentReconciles: 1,
		Reconcile: func(ctx context.Context, _ controller.Request) (controller.Result, error) {
			return controller.Result{}, t.updateCondition(ctx, writer)
		},
	}
}

func mapCount(event watch.Event) []controller.Request {
	count, ok := event.Object.(*shardingv1alpha1.WorkspaceCount)
	if !ok {
		return nil
	}
	return []controller.Request{{ClusterName: logicalcluster.Of(count), Name: corev1alpha1.LogicalClusterName}}
}

// mapCluster maps a LogicalCluster with limits or the condition.
func mapCluster(event watch.Event) []controller.Request {
	cluster, ok := event.Object.(*corev1alpha1.LogicalCluster)
	if !ok || event.Type == watch.Deleted {
		return nil
	}
	if _, limited := Of(cluster.Annotations); !limited && conditionsv1alpha1.Get(cluster, corev1alpha1.WorkspacesWithinLimits) == nil {
		return nil
	}
	return controller.RequestForObject(event)
}

func (t *Tracker) updateCondition(ctx context.Context, writer client.Client) error {
	stored, err := t.local.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	cluster := stored.DeepCopy()
	if err := t.setCondition(ctx, cluster); err != nil || equality.Semantic.DeepEqual(stored.Status.Conditions, cluster.Status.Conditions) {
		return err
	}
	if err := writer.Status().Update(ctx, cluster); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of the LogicalCluster: %w", err)
	}
	return nil
}

// setCondition sets or removes the condition. A logical cluster that has not been counted keeps it: an event follows.
func (t *Tracker) setCondition(ctx context.Context, cluster *corev1alpha1.LogicalCluster) error {
	name := logicalcluster.Of(cluster)
	limits, limited := Of(cluster.Annotations)
	if !limited {
		conditionsv1alpha1.Delete(cluster, corev1alpha1.WorkspacesWithinLimits)
		return nil
	}
	t.mu.Lock()
	e := t.entries[name]
	if e == nil || !e.isCounted() {
		t.mu.Unlock()
		return nil
	}
	descendants := e.stored
	t.mu.Unlock()
	elsewhere, err := t.usedElsewhere(ctx, []*entry{e})
	if err != nil {
		return err
	}
	children, err := t.children.List(ctx, "", nil)
	if err != nil {
		return fmt.Errorf("listing the workspaces: %w", err)
	}
	setUsage(cluster, limits, int64(len(children)), descendants+elsewhere[name])
	return nil
}

// setUsage sets the condition from the numbers of Workspaces in a logical cluster, and in it and below.
func setUsage(cluster *corev1alpha1.LogicalCluster, limits Limits, children, descendants int64) {
	var usage []string
	reached := false
	add := func(used, limit int64, what string) {
		if limit != None {
			usage = append(usage, fmt.Sprintf("%d of %d %s", used, limit, what))
			reached = reached || used >= limit
		}
	}
	add(children, limits.Children, "workspaces in it")
	add(descendants, limits.Descendants, "workspaces in it and below")
	message := strings.Join(usage, ", ")
	if reached {
		conditionsv1alpha1.MarkFalse(cluster, corev1alpha1.WorkspacesWithinLimits, corev1alpha1.ReasonWorkspaceLimitReached, conditionsv1alpha1.SeverityInfo, "%s", message)
		return
	}
	conditionsv1alpha1.Set(cluster, conditionsv1alpha1.Condition{Type: corev1alpha1.WorkspacesWithinLimits, Status: corev1.ConditionTrue, Message: message})
}
