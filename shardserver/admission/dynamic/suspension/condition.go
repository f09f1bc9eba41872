package suspension

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// refresh is how long the condition is not written again for further suspensions.
const refresh = Longest / 5

var logicalClusters = schema.GroupResource{Group: corev1alpha1.SchemeGroupVersion.Group, Resource: "logicalclusters"}

// Conditions writes the condition of suspensions to LogicalClusters.
type Conditions struct {
	tracker *Tracker
	clients *loopback.Clients
	reader  *storage.Reader[*corev1alpha1.LogicalCluster]
}

// NewConditions returns Conditions for the suspensions of a Tracker.
func NewConditions(tracker *Tracker, registry *storage.Registry, clients *loopback.Clients) *Conditions {
	return &Conditions{tracker, clients, storage.NewReader[*corev1alpha1.LogicalCluster](registry, logicalClusters)}
}

// Run sets the condition for suspensions of this server, until the context ends. Every replica of a shard needs it.
func (c *Conditions) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case suspended := <-c.tracker.suspended:
			if err := c.set(logicalcluster.With(ctx, suspended.Cluster)); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Failed to set the condition of suspended expressions", "logicalCluster", suspended.Cluster, "object", suspended.Object)
			}
		}
	}
}

// set sets the condition. The logical cluster of a provider's policy may be on another shard, which reads no status of
// this one.
func (c *Conditions) set(ctx context.Context) error {
	name, _ := logicalcluster.From(ctx)
	return c.update(ctx, func(cluster *corev1alpha1.LogicalCluster) bool {
		objects := c.tracker.of(name)
		if objects == "" {
			return false
		}
		before := conditionsv1alpha1.Get(cluster, corev1alpha1.ExpressionsWithinCostLimit)
		if before != nil && c.tracker.clock.Since(before.LastTransitionTime.Time) < refresh && strings.HasPrefix(before.Message, objects+":") {
			return false
		}
		// The time of the condition is that of the last suspension, by which the controller removes it.
		conditionsv1alpha1.Delete(cluster, corev1alpha1.ExpressionsWithinCostLimit)
		conditionsv1alpha1.MarkFalse(cluster, corev1alpha1.ExpressionsWithinCostLimit, corev1alpha1.ReasonExpressionsSuspended, conditionsv1alpha1.SeverityWarning,
			"%s: the expressions exceed their cost limit again and again, and are suspended for up to %s at a time. Change them so that they compare, format or iterate over less", objects, Longest)
		return true
	})
}

// Controller removes the condition when the last suspension has ended.
func (c *Conditions) Controller() controller.Controller {
	return controller.Controller{
		Name: "expression-suspension",
		Sources: []controller.Source{{Resource: logicalClusters, MapFunc: func(event watch.Event) []controller.Request {
			cluster, ok := event.Object.(*corev1alpha1.LogicalCluster)
			if !ok || event.Type == watch.Deleted || conditionsv1alpha1.Get(cluster, corev1alpha1.ExpressionsWithinCostLimit) == nil {
				return nil
			}
			return controller.RequestForObject(event)
		}}},
		MaxConcurrentReconciles: 1,
		Reconcile: func(ctx context.Context, _ controller.Request) (controller.Result, error) {
			var result controller.Result
			err := c.update(ctx, func(cluster *corev1alpha1.LogicalCluster) bool {
				condition := conditionsv1alpha1.Get(cluster, corev1alpha1.ExpressionsWithinCostLimit)
				if condition == nil {
					return false
				}
				if result.RequeueAfter = condition.LastTransitionTime.Add(Longest + refresh).Sub(c.tracker.clock.Now()); result.RequeueAfter > 0 {
					return false
				}
				result.RequeueAfter = 0
				conditionsv1alpha1.Delete(cluster, corev1alpha1.ExpressionsWithinCostLimit)
				return true
			})
			return result, err
		},
	}
}

// update changes the status of the LogicalCluster of the context, if it is on this shard, unless change returns false.
func (c *Conditions) update(ctx context.Context, change func(*corev1alpha1.LogicalCluster) bool) error {
	return retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		stored, err := c.reader.Get(ctx, "", corev1alpha1.LogicalClusterName)
		if err != nil {
			return client.IgnoreNotFound(err)
		}
		cluster := stored.DeepCopy()
		if !change(cluster) {
			return nil
		}
		if err := c.clients.Typed.Status().Update(ctx, cluster); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("writing the status of the LogicalCluster: %w", err)
		}
		return nil
	})
}

func sortedKeys(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
