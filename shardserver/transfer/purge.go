package transfer

import (
	"context"
	"fmt"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Purge deletes the keys of a logical cluster, except those that are kept (nil: none), until there are no others, and returns how many it
// deleted. Each transaction requires the fence; Purge fails with ErrFenced if it does not hold.
func (t *Transfer) Purge(ctx context.Context, cluster logicalcluster.Name, keep func(Key) bool, fence []clientv3.Cmp) (deleted int, err error) {
	for {
		found, removed, err := t.purgeOnce(ctx, cluster, keep, fence)
		deleted += removed
		if err != nil {
			return deleted, fmt.Errorf("deleting the keys of logical cluster %q: %w", cluster, err)
		}
		if found == 0 {
			return deleted, nil
		}
	}
}

// purgeOnce deletes the keys that exist now.
func (t *Transfer) purgeOnce(ctx context.Context, cluster logicalcluster.Name, keep func(Key) bool, fence []clientv3.Cmp) (found, deleted int, err error) {
	resources, _, err := t.resourcesOf(ctx, cluster)
	if err != nil {
		return 0, 0, err
	}
	var removed atomic.Int64
	deletes, deleteCtx := errgroup.WithContext(ctx)
	deletes.SetLimit(parallelWrites)
	for _, resource := range resources {
		prefix := t.clusterPrefix(cluster, resource)
		err = t.eachKey(deleteCtx, prefix, 0, true, func(page []*mvccpb.KeyValue) error {
			for _, kv := range page {
				key := string(kv.Key)
				if keep != nil && keep(Key{resource, key[len(prefix):]}) {
					continue
				}
				found++
				deletes.Go(func() error {
					response, err := t.cfg.Client.Txn(deleteCtx).If(fence...).Then(clientv3.OpDelete(key)).Commit()
					if err != nil {
						return fmt.Errorf("deleting a key of %s: %w", resource, err)
					}
					if !response.Succeeded {
						return ErrFenced
					}
					removed.Add(response.Responses[0].GetResponseDeleteRange().Deleted)
					return nil
				})
			}
			return nil
		})
		if err != nil {
			break
		}
	}
	// The error of a deletion ends the context of the reads, whose error then says less.
	if deleteErr := deletes.Wait(); deleteErr != nil {
		err = deleteErr
	}
	return found, int(removed.Load()), err
}
