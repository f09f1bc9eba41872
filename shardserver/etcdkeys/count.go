package etcdkeys

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/atoll-dev/atoll/internal/etcdlist"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// CountAll calls count with the number of keys of each logical cluster in each storage. It scans the keys of each resource
// once, independent of the number of logical clusters.
func (s *Scanner) CountAll(ctx context.Context, count func(cluster logicalcluster.Name, keys int64)) error {
	for _, resource := range s.cfg.Registry.AllStorages() {
		if err := s.countStorage(ctx, s.prefixOf(resource.Prefix), count); err != nil {
			return fmt.Errorf("counting %s: %w", resource.Prefix, err)
		}
	}
	return nil
}

// Count returns the number of keys of one logical cluster.
func (s *Scanner) Count(ctx context.Context, cluster logicalcluster.Name) (int64, error) {
	var prefixes []string
	for _, resource := range s.cfg.Registry.AllStorages() {
		prefixes = append(prefixes, s.prefixOf(resource.Prefix, cluster.String()))
	}
	found, err := s.countPrefixes(ctx, prefixes)
	if err != nil {
		return 0, fmt.Errorf("counting the keys of logical cluster %q: %w", cluster, err)
	}
	var sum int64
	for _, keys := range found {
		sum += keys
	}
	return sum, nil
}

// CountIn implements content.KeyCounter.
func (s *Scanner) CountIn(ctx context.Context, resources []*storage.Resource, namespace string) ([]int64, error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster.IsWildcard() {
		return nil, fmt.Errorf("counting keys: not a single logical cluster")
	}
	prefixes := make([]string, 0, len(resources))
	for _, resource := range resources {
		prefixes = append(prefixes, s.prefixOf(resource.Prefix, cluster.String(), namespace))
	}
	return s.countPrefixes(ctx, prefixes)
}

// countStorage reads the keys below a prefix, which are sorted by logical cluster.
func (s *Scanner) countStorage(ctx context.Context, prefix string, count func(logicalcluster.Name, int64)) error {
	client, err := s.Connect()
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
	err = etcdlist.Read(ctx, client, prefix, 0, func(part []*mvccpb.KeyValue) error {
		for _, kv := range part {
			cluster, _, _ := strings.Cut(string(kv.Key[len(prefix):]), "/")
			if cluster != current {
				flush()
				current = cluster
			}
			keys++
		}
		return nil
	}, clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	flush()
	return nil
}
