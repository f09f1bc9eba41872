package registration

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

type decisionController struct {
	Config
	reader
}

// DecisionController returns the controller of each shard that applies to its own Shard what administrators have decided in root: whether it is
// cordoned, and its limits. While root has no Shard of it, those of the last one stay.
func DecisionController(cfg Config) controller.Controller {
	c := &decisionController{cfg, newReader(cfg)}
	return controller.Controller{
		Name:                    "shard-decisions",
		Sources:                 []controller.Source{{Resource: shards, MapFunc: c.key, Global: true}},
		MaxConcurrentReconciles: 1,
		Reconcile:               c.reconcile,
	}
}

// key maps both Shards of this shard to the one that it owns.
func (c *decisionController) key(event watch.Event) []controller.Request {
	shard := shardOf(event)
	if shard == nil || shard.Name != c.ShardName {
		return nil
	}
	switch logicalcluster.Of(shard) {
	case logicalcluster.Root, logicalcluster.Shard:
		return []controller.Request{{ClusterName: logicalcluster.Shard, Name: shard.Name}}
	}
	return nil
}

func (c *decisionController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	owned, err := c.owned(ctx, key.Name)
	if err != nil || owned == nil {
		return controller.Result{}, err
	}
	inRoot, err := c.representation(ctx, key.Name)
	if storage.IsNotSynced(err) || err == nil && inRoot == nil {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, fmt.Errorf("reading the Shard in %s: %w", logicalcluster.Root, err)
	}
	updated := owned.DeepCopy()
	copyDecisions(updated, inRoot)
	if equality.Semantic.DeepEqual(updated, owned) {
		return controller.Result{}, nil
	}
	if err := c.Client.Update(ctx, updated); err != nil {
		return controller.Result{}, fmt.Errorf("applying what is decided in %s: %w", logicalcluster.Root, err)
	}
	return controller.Result{}, nil
}

// copyDecisions sets what administrators decide about a Shard.
func copyDecisions(to, from *corev1alpha1.Shard) {
	to.Spec.ResourceLimits = from.Spec.ResourceLimits.DeepCopy()
	value, cordoned := from.Annotations[corev1alpha1.UnschedulableAnnotationKey]
	switch {
	case !cordoned:
		delete(to.Annotations, corev1alpha1.UnschedulableAnnotationKey)
	case to.Annotations == nil:
		to.Annotations = map[string]string{corev1alpha1.UnschedulableAnnotationKey: value}
	default:
		to.Annotations[corev1alpha1.UnschedulableAnnotationKey] = value
	}
}
