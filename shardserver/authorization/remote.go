package authorization

import (
	"context"
	"fmt"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Decisions about logical clusters of other shards are evaluated against replicas of what those shards publish:
// LogicalClusters that other shards need, and the RBAC for bind, use, initialize, terminate and access (package
// replicatelabel). Requests themselves are never authorized this way, because their logical cluster must be on this
// shard to be served. If the replica is not synced, the decision is an error.

type (
	remoteAllowedKey struct{}
	remoteClusterKey struct{}
)

// WithRemote allows decisions in the context to be about a logical cluster of another shard. It is for checks that
// the server makes itself, not for requests.
func WithRemote(ctx context.Context) context.Context {
	return context.WithValue(ctx, remoteAllowedKey{}, true)
}

func isRemoteAllowed(ctx context.Context) bool {
	marked, _ := ctx.Value(remoteAllowedKey{}).(bool)
	return marked || isDeepSAR(ctx)
}

// withRemoteCluster returns a context in which policies are read from replicas, if the logical cluster is not on this
// shard.
func withRemoteCluster(ctx context.Context, registry *storage.Registry, cluster logicalcluster.Name) (context.Context, error) {
	local, err := registry.IsLocal(ctx, cluster)
	if err != nil {
		return ctx, fmt.Errorf("locating logical cluster %q: %w", cluster, err)
	}
	if local {
		return ctx, nil
	}
	return context.WithValue(ctx, remoteClusterKey{}, cluster), nil
}

// isRemote reports whether the logical cluster of the context is on another shard.
func isRemote(ctx context.Context) bool {
	remote, marked := ctx.Value(remoteClusterKey{}).(logicalcluster.Name)
	if !marked {
		return false
	}
	cluster, ok := logicalcluster.From(ctx)
	return ok && cluster == remote
}
