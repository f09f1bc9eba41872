package shardclient

import (
	"context"
	"time"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/internal/moves"
	"github.com/atoll-dev/atoll/internal/rebalance"
)

// Rebalance compares the shards of an installation, and begins as many moves between them as the options allow.
func (c *Clients) Rebalance(ctx context.Context, root *operatorv1alpha1.RootShard, options rebalance.Options, now time.Time) (found rebalance.Decision, err error) {
	err = c.withRebalancer(ctx, root, options, func(r *rebalance.Rebalancer) error {
		found, err = r.Step(ctx, now)
		return err
	})
	return found, describeMoveError(ctx, err, "rebalancing RootShard %s", root.Name)
}

// StopRebalancing gives up the moves of the rebalancer that have not taken over, and returns how many have not ended.
func (c *Clients) StopRebalancing(ctx context.Context, root *operatorv1alpha1.RootShard) (running int, err error) {
	err = c.withRebalancer(ctx, root, rebalance.Options{}, func(r *rebalance.Rebalancer) error {
		running, err = r.Stop(ctx, true)
		return err
	})
	return running, describeMoveError(ctx, err, "rebalancing RootShard %s", root.Name)
}

func (c *Clients) withRebalancer(ctx context.Context, root *operatorv1alpha1.RootShard, options rebalance.Options, do func(*rebalance.Rebalancer) error) error {
	return c.withMoves(ctx, root, func(client moves.Client) error {
		return do(&rebalance.Rebalancer{
			Client: client, Options: options,
			Inventory: func(ctx context.Context, name string) (moves.Inventory, error) {
				if name == desired.NewRootShard(root).ShardName() {
					return c.inventory(ctx, desired.NewRootShard(root))
				}
				shard, err := apply.Get[operatorv1alpha1.Shard](ctx, c.cluster, root.Namespace, name)
				if err == nil && shard == nil {
					err = Errorf("shard %q has too many workspaces, and is none that the operator runs: move some of them yourself", name)
				}
				if err != nil {
					return moves.Inventory{}, err
				}
				return c.inventory(ctx, desired.NewShard(shard, root))
			},
		})
	})
}
