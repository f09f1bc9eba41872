package etcdkeys

import (
	"context"
	"fmt"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

// systemPrefix is the prefix of the names of the shard's system logical clusters.
const systemPrefix = "system:"

// TotalWithSystem returns the number of keys of the resources in all logical clusters.
func (s *Scanner) TotalWithSystem(ctx context.Context, resources ...*storage.Resource) (int64, error) {
	prefixes := make([]string, 0, len(resources))
	for _, resource := range resources {
		prefixes = append(prefixes, s.prefixOf(resource.Prefix))
	}
	found, err := s.countPrefixes(ctx, prefixes)
	if err != nil {
		return 0, fmt.Errorf("counting the keys of all logical clusters, and of those of the system: %w", err)
	}
	var total int64
	for _, count := range found {
		total += count
	}
	return total, nil
}

// Total returns the number of keys of the resources in all logical clusters except the system ones.
func (s *Scanner) Total(ctx context.Context, resources ...*storage.Resource) (int64, error) {
	prefixes := make([]string, 0, 2*len(resources))
	for _, resource := range resources {
		all := s.prefixOf(resource.Prefix)
		prefixes = append(prefixes, all, all+systemPrefix)
	}
	found, err := s.countPrefixes(ctx, prefixes)
	if err != nil {
		return 0, fmt.Errorf("counting the keys of all logical clusters: %w", err)
	}
	var total int64
	for i := 0; i < len(found); i += 2 {
		total += found[i] - found[i+1]
	}
	return total, nil
}
