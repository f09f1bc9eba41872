package etcdkeys

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// bytesPerPage is the size that pages of values are to have.
	bytesPerPage = 4 << 20
	// firstPageKeys and maxPageKeys bound the keys of a page of values, whose size is not known before it is read.
	firstPageKeys, maxPageKeys = 8, 500
)

// CountBytes returns the size of all values of one logical cluster, orphans included. It reads the values, because etcd
// does not return their size otherwise.
func (s *Scanner) CountBytes(ctx context.Context, cluster logicalcluster.Name) (int64, error) {
	prefixes, err := s.StoragePrefixes(ctx)
	if err != nil {
		return 0, err
	}
	for i, prefix := range prefixes {
		prefixes[i] = s.prefixOf(prefix, cluster.String())
	}
	keys, err := s.countPrefixes(ctx, prefixes)
	if err != nil {
		return 0, fmt.Errorf("counting the bytes of logical cluster %q: %w", cluster, err)
	}
	var sum int64
	for i, prefix := range prefixes {
		if keys[i] == 0 {
			continue
		}
		bytes, err := s.countPrefixBytes(ctx, prefix)
		if err != nil {
			return 0, fmt.Errorf("counting the bytes of logical cluster %q: %w", cluster, err)
		}
		sum += bytes
	}
	return sum, nil
}

// countPrefixBytes pages through the values below a prefix.
func (s *Scanner) countPrefixBytes(ctx context.Context, prefix string) (sum int64, err error) {
	client, err := s.Connect()
	if err != nil {
		return 0, err
	}
	from, end, limit := prefix, clientv3.GetPrefixRangeEnd(prefix), int64(firstPageKeys)
	for {
		page, err := client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(limit))
		if err != nil {
			return 0, err
		}
		var bytes int64
		for _, kv := range page.Kvs {
			bytes += int64(len(kv.Value))
		}
		sum += bytes
		if !page.More {
			return sum, nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		limit = nextPageKeys(limit, bytes)
	}
}

// nextPageKeys returns the number of keys of the page after one with that many keys and bytes.
func nextPageKeys(keys, bytes int64) int64 {
	if bytes == 0 {
		return maxPageKeys
	}
	return min(max(keys*bytesPerPage/bytes, 1), maxPageKeys)
}
