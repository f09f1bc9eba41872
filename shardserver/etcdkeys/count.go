package etcdkeys

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// CountAll calls count for every logical cluster and storage with the number of its keys there: one pass over the keys
// of each resource, whatever the number of logical clusters.
func (k *Keyspace) CountAll(ctx context.Context, count func(cluster logicalcluster.Name, keys int64)) error {
	for _, resource := range k.cfg.Registry.Stored() {
		if err := k.countStorage(ctx, k.below(resource.Prefix), count); err != nil {
			return fmt.Errorf("counting %s: %w", resource.Prefix, err)
		}
	}
	return nil
}

// Count returns the number of keys of one logical cluster.
func (k *Keyspace) Count(ctx context.Context, cluster logicalcluster.Name) (int64, error) {
	var prefixes []string
	for _, resource := range k.cfg.Registry.Stored() {
		prefixes = append(prefixes, k.below(resource.Prefix, cluster.String()))
	}
	found, err := k.counts(ctx, prefixes)
	if err != nil {
		return 0, fmt.Errorf("counting the keys of logical cluster %q: %w", cluster, err)
	}
	var sum int64
	for _, keys := range found {
		sum += keys
	}
	return sum, nil
}

// CountIn implements content.Keys.
func (k *Keyspace) CountIn(ctx context.Context, resources []*storage.Resource, namespace string) ([]int64, error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster.IsWildcard() {
		return nil, fmt.Errorf("counting keys: not a single logical cluster")
	}
	prefixes := make([]string, 0, len(resources))
	for _, resource := range resources {
		prefixes = append(prefixes, k.below(resource.Prefix, cluster.String(), namespace))
	}
	return k.counts(ctx, prefixes)
}

// countStorage walks the keys below a prefix, which stand in the order of their clusters.
func (k *Keyspace) countStorage(ctx context.Context, prefix string, count func(logicalcluster.Name, int64)) error {
	client, err := k.connection()
	if err != nil {
		return err
	}
	var current string
	var keys int64
	flush := func() {
		if name, err := logicalcluster.ParseName(current); err == nil && keys > 0 {
			count(name, keys)
		}
		keys = 0
	}
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		page, err := client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(keysPerRequest))
		if err != nil {
			return err
		}
		for _, kv := range page.Kvs {
			cluster, _, _ := strings.Cut(string(kv.Key[len(prefix):]), "/")
			if cluster != current {
				flush()
				current = cluster
			}
			keys++
		}
		if !page.More {
			flush()
			return nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}
