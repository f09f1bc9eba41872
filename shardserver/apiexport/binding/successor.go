package binding

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// successorRetryInterval is how often a binding looks for a successor without an event: the export of another binding may begin to
// offer its resources.
const successorRetryInterval = 30 * time.Second

// waitForSuccessor reports whether a binding waits for another one that binds its resources. Once there is no such
// binding any more, the status reports it first: users can create objects until then.
func (c *deletionController) waitForSuccessor(ctx context.Context, binding *apisv1alpha2.APIBinding) (bool, error) {
	if !bindings.IsWaitingForSuccessor(binding) {
		return false, nil
	}
	changed := binding.DeepCopy()
	if deleting, err := c.isClusterDeleting(ctx); err != nil {
		return false, err
	} else if deleting { // the workspace must not wait
		conditionsv1alpha1.MarkFalse(changed, apisv1alpha2.BindingResourceDeleteSuccess, apisv1alpha2.SomeResourcesRemainReason,
			conditionsv1alpha1.SeverityInfo, "Objects are deleted with the workspace")
		return true, c.writeStatus(ctx, binding, changed)
	}
	missing, err := c.findWithoutSuccessor(ctx, binding)
	if err != nil || len(missing) == 0 {
		return false, err
	}
	conditionsv1alpha1.MarkFalse(changed, apisv1alpha2.BindingResourceDeleteSuccess, apisv1alpha2.WaitingForSuccessorReason, conditionsv1alpha1.SeverityInfo,
		"No other APIBinding is to an export that offers %s with the same schema and identity; create one, or set spec.deletionPolicy to %s to delete the objects",
		strings.Join(missing, ", "), apisv1alpha2.DeletionPolicyDelete)
	return true, c.writeStatus(ctx, binding, changed)
}

// isClusterDeleting reports whether the LogicalCluster is being deleted or missing.
func (c *deletionController) isClusterDeleting(ctx context.Context) (bool, error) {
	cluster, err := c.clusters.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the LogicalCluster: %w", err)
	}
	return cluster.DeletionTimestamp != nil, nil
}

// findWithoutSuccessor returns the stored resources of a binding that no other binding adopts, in order.
func (c *deletionController) findWithoutSuccessor(ctx context.Context, binding *apisv1alpha2.APIBinding) ([]string, error) {
	others, err := c.listOthers(ctx, binding)
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, bound := range binding.Status.BoundResources {
		if len(bound.StorageVersions) == 0 {
			continue // virtual storage
		}
		adopted, err := c.isBoundByOther(ctx, others, bound)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", boundGroupResource(bound), err)
		}
		if !adopted {
			missing = append(missing, boundGroupResource(bound).String())
		}
	}
	slices.Sort(missing)
	return missing, nil
}

// successorKeys returns the bindings that wait for a successor in the logical cluster of a binding that may be one.
func (c *deletionController) successorKeys(event watch.Event) []controller.Request {
	binding, ok := event.Object.(*apisv1alpha2.APIBinding)
	if !ok || event.Type == watch.Deleted || binding.DeletionTimestamp != nil {
		return nil
	}
	return c.waitingKeys(logicalcluster.Of(binding))
}

// deletingClusterKeys returns the bindings that wait for a successor in a logical cluster that is being deleted.
func (c *deletionController) deletingClusterKeys(event watch.Event) []controller.Request {
	cluster, ok := event.Object.(*corev1alpha1.LogicalCluster)
	if !ok || (event.Type != watch.Deleted && cluster.DeletionTimestamp == nil) {
		return nil
	}
	return c.waitingKeys(logicalcluster.Of(cluster))
}

func (c *deletionController) waitingKeys(cluster logicalcluster.Name) []controller.Request {
	return controller.RequestsForObjects(c.bindings, cluster, func(binding *apisv1alpha2.APIBinding) bool {
		return isPendingDeletion(binding) && bindings.IsWaitingForSuccessor(binding)
	})
}
