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

// Requeue delays of a deletion without events.
const (
	remainingRetryInterval = 3 * time.Second
	finalizerRetryInterval = 8 * time.Second
)

// retryLimiter limits the rate at which all deletions together are requeued without an event, so that many concurrent
// deletions do not starve the workers.
type retryLimiter struct{ limiter *rate.Limiter }

// Limits of the retries, and the maximum additional delay: not all removals cause events.
const (
	retriesPerSecond = 50
	retryBurst       = 150
	maxRetryDelay    = time.Minute
)

func newRetryLimiter() retryLimiter {
	return retryLimiter{rate.NewLimiter(retriesPerSecond, retryBurst)}
}

// delay reserves a retry, and returns the additional delay that the rate limit requires.
func (l retryLimiter) delay(now time.Time) time.Duration {
	reservation := l.limiter.ReserveN(now, 1)
	if delay := reservation.DelayFrom(now); delay <= maxRetryDelay {
		return delay
	}
	reservation.CancelAt(now)
	return maxRetryDelay
}

// delete deletes the content of a logical cluster and then removes the finalizer. Terminators block the removal of the
// LogicalCluster, not of its content. The order is: tenant content, including child workspaces and namespaces; then
// bindings, so that providers see their objects until they are removed; then RBAC, which tenants need for watches; then
// everything that was created meanwhile; then the finalizer.
func (c *logicalClusterController) delete(ctx context.Context, scope *clusterScope) (controller.Result, error) {
	cluster := scope.cluster
	if !controllerutil.ContainsFinalizer(cluster, corev1alpha1.LogicalClusterDeletionFinalizer) {
		return controller.Result{}, c.writeDeleting(ctx, scope)
	}
	left, err := c.deleteContent(ctx, cluster)
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

// deferContentStatus reports whether the deletion of the remaining objects has just started. They are usually removed
// within a moment, so the condition is not written, which saves two writes, here and to the Workspace. delay is the
// additional delay of the retry limiter.
func deferContentStatus(cluster *corev1alpha1.LogicalCluster, left *content.Remaining, now time.Time, delay time.Duration) bool {
	if len(cluster.Status.Terminators) > 0 || conditionsv1alpha1.Get(cluster, corev1alpha1.WorkspaceContentDeleted) != nil {
		return false
	}
	return left.Since().IsZero() || age(metav1.NewTime(left.Since()), now) < contentStatusInterval+delay
}

// contentStatusInterval is the minimum time between two updates of the counts in the condition. Each removed object
// triggers a reconcile, and each update costs two writes, here and to the Workspace.
const contentStatusInterval = 2 * time.Second

// hasRecentCounts reports whether the counts in the condition are recent.
func hasRecentCounts(cluster *corev1alpha1.LogicalCluster, now time.Time, delay time.Duration) bool {
	condition := conditionsv1alpha1.Get(cluster, corev1alpha1.WorkspaceContentDeleted)
	return condition != nil && condition.Reason == corev1alpha1.ReasonSomeResourcesRemain && age(condition.LastTransitionTime, now) < contentStatusInterval+delay
}

// deleteContent deletes all content of a LogicalCluster, and returns the remaining objects.
func (c *logicalClusterController) deleteContent(ctx context.Context, cluster *corev1alpha1.LogicalCluster) (*content.Remaining, error) {
	all, err := c.cfg.Registry.List(ctx)
	if err != nil {
		return nil, err
	}
	client := c.cfg.Clients.Metadata
	// Admission webhooks and policies of the tenant first: they might deny the following deletions.
	left, err := content.Delete(ctx, client, slices.DeleteFunc(slices.Clone(all), notAdmission), "", content.Cached, nil)
	if err != nil {
		return left, err
	}
	for _, stage := range []struct {
		excluded func(*storage.Resource) bool
		// plain returns what can be deleted without requests.
		plain func(context.Context, []*storage.Resource) ([]plainObject, error)
	}{{notTenantContent, c.plainNamespaces}, {notBinding, c.plainBindings}, {notPolicy, c.plainPolicy}} {
		gone, err := c.deletePlain(ctx, cluster, all, stage.plain)
		if err != nil {
			return nil, err
		}
		left, err = content.Delete(ctx, client, slices.DeleteFunc(slices.Clone(all), stage.excluded), "", content.Cached, gone)
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
	left, err = content.Delete(ctx, client, rest, "", content.Latest, nil)
	if err != nil || !left.Empty() || c.cfg.PurgeOrphans == nil {
		return left, err
	}
	_, err = c.cfg.PurgeOrphans(ctx, cluster)
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

// release removes the finalizer of this controller. The status is written only if other finalizers remain.
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
	// The events of the content have enqueued the logical cluster again: a stale watch cache would repeat the deletion.
	_, _ = c.clusters.ListLatest(ctx, "", nil)
	if c.cfg.Deleted != nil {
		c.cfg.Deleted(scope.name)
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
