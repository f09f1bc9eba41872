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
	// confirmationGracePeriod is for how long a logical cluster with nothing left to initialize says nothing: the shard of its
	// workspace confirms it while it is initialized, or a moment later.
	confirmationGracePeriod = 2 * time.Second
	// releaseRetryInterval is when an empty logical cluster that its workspace's shard has to let go is looked at without an event.
	releaseRetryInterval = 30 * time.Second
)

// needsConfirmation tells whether a logical cluster could be ready, but for the word of the workspace's shard that the workspace
// leads to it: it may have been made because of an old request.
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

// held tells whether an empty logical cluster has to stay until the shard of its workspace knows of its end.
func (c *logicalClusterController) awaitsRelease(ctx context.Context, scope *clusterScope) (bool, error) {
	if scope.responder == nil || scope.responder.Released() {
		return false, nil
	}
	shard, _ := placement.Remote(scope.cluster)
	all, err := c.shards.list(ctx)
	if apierrors.IsServiceUnavailable(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("listing shards: %w", err)
	}
	return shardByName(all, shard) != nil, nil // a shard that was removed cannot release it
}
