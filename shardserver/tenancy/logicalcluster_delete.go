package tenancy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/content"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// When a deletion looks again, if no event tells earlier that something is gone.
const (
	remainingRetryInterval = 3 * time.Second
	finalizerRetryInterval = 8 * time.Second
)

// looks bounds how often all deletions together look again without an event. Each would every few seconds; of ten thousand at
// once that is more than processors can do, and nothing would ever be deleted for the looking.
type retryLimiter struct{ limiter *rate.Limiter }

// Looks that a processor hardly notices; and how long one waits at most, for not everything that goes is an event.
const (
	retriesPerSecond = 50
	retryBurst       = 150
	maxRetryDelay    = time.Minute
)

func newRetryLimiter() retryLimiter {
	return retryLimiter{rate.NewLimiter(retriesPerSecond, retryBurst)}
}

// behind takes a look, and returns by how much it has to wait for those of others.
func (l retryLimiter) delay(now time.Time) time.Duration {
	look := l.limiter.ReserveN(now, 1)
	if delay := look.DelayFrom(now); delay <= maxRetryDelay {
		return delay
	}
	look.CancelAt(now)
	return maxRetryDelay
}

// delete empties a logical cluster and then lets go of it. Terminators hold the LogicalCluster, not its content. The
// order is: what the tenant made, child workspaces and namespaces among it; then bindings, so that providers see what
// they have there until it is gone; then RBAC, by which tenants could still watch; then whatever appeared meanwhile; then
// the finalizer.
func (c *logicalClusterController) delete(ctx context.Context, scope *clusterScope) (controller.Result, error) {
	cluster := scope.cluster
	if !controllerutil.ContainsFinalizer(cluster, corev1alpha1.LogicalClusterDeletionFinalizer) {
		return controller.Result{}, c.writeDeleting(ctx, scope)
	}
	left, err := c.deleteContent(ctx)
	switch {
	case err != nil:
		conditionsv1alpha1.MarkFalse(cluster, corev1alpha1.WorkspaceContentDeleted, corev1alpha1.ReasonContentDeletionFailed, conditionsv1alpha1.SeverityError, "%v", err)
		if writeErr := c.writeDeleting(ctx, scope); writeErr != nil {
			return controller.Result{}, writeErr
		}
		return controller.Result{}, fmt.Errorf("emptying logical cluster %q: %w", scope.name, err)
	case !left.Empty():
		now := time.Now()
		delay := c.retries.delay(now)
		if deferContentStatus(cluster, left, now, delay) {
			return controller.Result{RequeueAfter: contentStatusInterval + delay}, nil
		}
		if !hasRecentCounts(cluster, now, delay) {
			conditionsv1alpha1.MarkFalse(cluster, corev1alpha1.WorkspaceContentDeleted, corev1alpha1.ReasonSomeResourcesRemain, conditionsv1alpha1.SeverityInfo, "%s", left)
		}
		requeueAfter := remainingRetryInterval
		if len(left.Finalizers) > 0 {
			requeueAfter = finalizerRetryInterval
		}
		return controller.Result{RequeueAfter: requeueAfter + delay}, c.writeDeleting(ctx, scope)
	}
	conditionsv1alpha1.MarkTrue(cluster, corev1alpha1.WorkspaceContentDeleted)
	if waits, err := c.awaitsRelease(ctx, scope); err != nil || waits {
		return controller.Result{RequeueAfter: releaseRetryInterval}, errors.Join(err, c.writeDeleting(ctx, scope))
	}
	return controller.Result{}, c.release(ctx, scope)
}

// deferContentStatus tells whether what is left has only just begun to go: nearly always it is gone before anybody reads of it, the
// bindings with their finalizer among it, and two writes are spared, here and in the mirroring Workspace. Where deletions are
// behind, nearly always is later by as much.
func deferContentStatus(cluster *corev1alpha1.LogicalCluster, left *content.Remaining, now time.Time, delay time.Duration) bool {
	if len(cluster.Status.Terminators) > 0 || conditionsv1alpha1.Get(cluster, corev1alpha1.WorkspaceContentDeleted) != nil {
		return false
	}
	return left.Since().IsZero() || age(metav1.NewTime(left.Since()), now) < contentStatusInterval+delay
}

// contentStatusInterval is how long the counts of the condition may lag behind. Each object that goes wakes the deletion up, and
// writing every count down would cost two writes for each: one here, one in the mirroring Workspace.
const contentStatusInterval = 2 * time.Second

// hasRecentCounts tells whether the condition has counts that are fresh enough.
func hasRecentCounts(cluster *corev1alpha1.LogicalCluster, now time.Time, delay time.Duration) bool {
	condition := conditionsv1alpha1.Get(cluster, corev1alpha1.WorkspaceContentDeleted)
	return condition != nil && condition.Reason == corev1alpha1.ReasonSomeResourcesRemain && age(condition.LastTransitionTime, now) < contentStatusInterval+delay
}

// deleteContent deletes all content, and returns the remaining objects.
func (c *logicalClusterController) deleteContent(ctx context.Context) (*content.Remaining, error) {
	all, err := c.cfg.Registry.In(ctx)
	if err != nil {
		return nil, err
	}
	client := c.cfg.Clients.Metadata
	// Admission webhooks and policies of the tenant first: they might deny the following deletions.
	left, err := content.Delete(ctx, client, slices.DeleteFunc(slices.Clone(all), notAdmission), "", content.Cached)
	if err != nil {
		return left, err
	}
	for _, excluded := range []func(*storage.Resource) bool{notTenantContent, notBinding, notPolicy} {
		left, err = content.Delete(ctx, client, slices.DeleteFunc(slices.Clone(all), excluded), "", content.Cached)
		if err != nil || !left.Empty() {
			return left, err
		}
	}
	// The watch cache may have been stale, and namespaced objects are deleted by other controllers: read etcd, because
	// remaining objects would never be found after this.
	rest := slices.DeleteFunc(all, isLogicalCluster)
	empty, err := content.FindEmpty(ctx, c.cfg.Keys, rest, "")
	if err != nil {
		return nil, err
	}
	rest = slices.DeleteFunc(rest, func(resource *storage.Resource) bool { return empty[resource.GVR] })
	left, err = content.Delete(ctx, client, rest, "", content.Latest)
	if err != nil || !left.Empty() || c.cfg.PurgeOrphans == nil {
		return left, err
	}
	_, err = c.cfg.PurgeOrphans(ctx)
	return left, err
}

func notTenantContent(resource *storage.Resource) bool {
	return resource.Namespaced || !resource.Deletable || isLogicalCluster(resource) || isPolicy(resource) || !notBinding(resource)
}

func notBinding(resource *storage.Resource) bool { return resource.GVR.GroupResource() != apiBindings }

func notAdmission(resource *storage.Resource) bool {
	return resource.GVR.Group != admissionregistrationv1.GroupName
}

func notPolicy(resource *storage.Resource) bool { return !isPolicy(resource) }

func isPolicy(resource *storage.Resource) bool {
	return slices.Contains([]schema.GroupResource{clusterRoles, clusterRoleBindings}, resource.GVR.GroupResource())
}

func isLogicalCluster(resource *storage.Resource) bool {
	return resource.GVR.GroupResource() == logicalClusters
}

// release takes our finalizer off. The status is written only if the object stays for somebody else's.
func (c *logicalClusterController) release(ctx context.Context, scope *clusterScope) error {
	controllerutil.RemoveFinalizer(scope.cluster, corev1alpha1.LogicalClusterDeletionFinalizer)
	if len(scope.cluster.Status.Terminators) == 0 {
		controllerutil.RemoveFinalizer(scope.cluster, corev1alpha1.LogicalClusterHasTerminatorsFinalizer)
	}
	if len(scope.cluster.Finalizers) > 0 {
		return c.writeDeleting(ctx, scope)
	}
	if err := c.cfg.Clients.Typed.Update(ctx, scope.cluster); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer of logical cluster %q: %w", scope.name, err)
	}
	return nil
}

// writeDeleting stores phase, conditions, labels and finalizers of a logical cluster that is being deleted.
func (c *logicalClusterController) writeDeleting(ctx context.Context, scope *clusterScope) error {
	setClusterPhase(scope.cluster)
	c.setMetadata(scope)
	if err := c.write(ctx, scope); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}
