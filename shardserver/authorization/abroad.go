package authorization

import (
	"context"
	"fmt"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Questions about logical clusters of other shards are answered by what those have published: a LogicalCluster that
// others have to know, and the RBAC that decides who may bind, use, initialize, terminate and enter (package marks). A
// request itself is never answered so, since its logical cluster must be here to serve it. What is not known yet is
// undecided.

type (
	elsewhereKey struct{}
	abroadKey    struct{}
)

// WithElsewhere marks a context so that decisions in it may be about a logical cluster of another shard. It is for the
// server's own questions, not for requests.
func WithElsewhere(ctx context.Context) context.Context {
	return context.WithValue(ctx, elsewhereKey{}, true)
}

func mayBeElsewhere(ctx context.Context) bool {
	marked, _ := ctx.Value(elsewhereKey{}).(bool)
	return marked || isDeep(ctx)
}

// goAbroad has the policies read what other shards have published, if the logical cluster of the context is not here.
func goAbroad(ctx context.Context, registry *storage.Registry, cluster logicalcluster.Name) (context.Context, error) {
	here, err := registry.Here(ctx, cluster)
	if err != nil {
		return ctx, fmt.Errorf("finding out where logical cluster %q is: %w", cluster, err)
	}
	if here {
		return ctx, nil
	}
	return context.WithValue(ctx, abroadKey{}, cluster), nil
}

// isAbroad tells whether the logical cluster of the context is one of another shard.
func isAbroad(ctx context.Context) bool {
	abroad, marked := ctx.Value(abroadKey{}).(logicalcluster.Name)
	if !marked {
		return false
	}
	cluster, ok := logicalcluster.From(ctx)
	return ok && cluster == abroad
}
