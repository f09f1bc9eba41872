package tenancy

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
)

const (
	// confirmationGracePeriod is the time for which an initialized logical cluster does not report that it waits for
	// the confirmation of the workspace's shard.
	confirmationGracePeriod = 2 * time.Second
	// releaseRetryInterval is the requeue delay of an empty logical cluster that waits for the workspace's shard.
	releaseRetryInterval = 30 * time.Second
)

// needsConfirmation reports whether an initialized logical cluster waits for the confirmation of the workspace's shard
// that the workspace has it: it may have been created because of an old request.
func (s *clusterScope) needsConfirmation() bool {
	return s.responder != nil && initializing(s.cluster) && len(s.cluster.Status.Initializers) == 0 && !s.responder.Confirmed()
}

// awaitConfirmation leaves a logical cluster in its phase.
func (c *logicalClusterController) awaitConfirmation(ctx context.Context, scope *clusterScope, result controller.Result) (controller.Result, error) {
	if age := age(scope.cluster.CreationTimestamp, time.Now()); age < confirmationGracePeriod {
		c.waitForCache(ctx, scope)
		return controller.Result{RequeueAfter: confirmationGracePeriod - age}, nil
	}
	markInitializing(scope.cluster, nil)
	c.setMetadata(scope)
	if err := c.write(ctx, scope); err != nil {
		return result, err
	}
	c.waitForCache(ctx, scope)
	return result, nil
}

// awaitsRelease reports whether an empty logical cluster must stay until the shard of its workspace has observed its
// deletion.
func (c *logicalClusterController) awaitsRelease(ctx context.Context, scope *clusterScope) (bool, error) {
	if scope.responder == nil || scope.responder.Released() {
		return false, nil
	}
	shard, _ := placement.Remote(scope.cluster)
	all, err := c.shards.List(ctx)
	if apierrors.IsServiceUnavailable(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("listing shards: %w", err)
	}
	return shardByName(all, shard) != nil, nil // a shard that was removed cannot release it
}
