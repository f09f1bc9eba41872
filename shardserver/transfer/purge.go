package transfer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// UnknownKeysError is the error for keys in a storage that was not handed over, so that no other shard has them.
type UnknownKeysError struct {
	// Prefix is that of the keys in etcd, Keys their number.
	Prefix string
	Keys   int64
}

// Error implements error.
func (e *UnknownKeysError) Error() string {
	return fmt.Sprintf("etcd has %d keys below %s that were not handed over, so that no other shard has them", e.Keys, e.Prefix)
}

// Purge deletes the keys of a logical cluster in storages, except those that are kept (nil: none), until there are no others, and returns how
// many it deleted. If it finds any in another storage, it fails with an UnknownKeysError before it deletes more. Each transaction requires the
// fence; Purge fails with ErrFenced if it does not hold.
func (t *Transfer) Purge(ctx context.Context, cluster logicalcluster.Name, storages []string, keep func(Key) bool, fence []clientv3.Cmp) (deleted int, err error) {
	for {
		found, removed, err := t.purgeOnce(ctx, cluster, storages, keep, fence)
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
func (t *Transfer) purgeOnce(ctx context.Context, cluster logicalcluster.Name, storages []string, keep func(Key) bool, fence []clientv3.Cmp) (found, deleted int, err error) {
	existing, err := t.cfg.Scan(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("finding the storages: %w", err)
	}
	counts, _, err := t.countsOf(ctx, cluster, append(existing, storages...))
	if err != nil {
		return 0, 0, err
	}
	resources := slices.Sorted(maps.Keys(counts))
	for _, resource := range resources {
		if !slices.Contains(storages, resource) {
			return 0, 0, &UnknownKeysError{Prefix: t.clusterPrefix(cluster, resource), Keys: counts[resource]}
		}
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
