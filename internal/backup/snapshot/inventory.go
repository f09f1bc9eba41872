package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/atoll-dev/atoll/internal/backup/manifest"
)

const (
	// requestTimeout bounds a request that is no stream.
	requestTimeout = 20 * time.Second
	// keysPerRequest is the page size of keys, objectsPerRequest that of objects, which have up to some megabytes.
	keysPerRequest, objectsPerRequest = 1000, 8
)

// logicalClusters is the prefix of the keys "<prefix><logical cluster>/cluster", and apiExports that of "<prefix><logical cluster>/<name>".
func logicalClusters(prefix string) string {
	return path.Join("/", prefix, "core.kcp.io/logicalclusters/customresources") + "/"
}

func apiExports(prefix string) string {
	return path.Join("/", prefix, "apis.kcp.io/apiexports/customresources") + "/"
}

// logicalClusterOf returns the logical cluster of a key of a LogicalCluster.
func logicalClusterOf(key, prefix string) (string, bool) {
	rest, found := strings.CutPrefix(key, prefix)
	name, _, isObject := strings.Cut(rest, "/")
	return name, found && isObject
}

// Inventory passes each logical cluster and each identity of an APIExport of a shard as of RevisionFrom to a function.
func (s *Stream) Inventory(ctx context.Context, visit func(manifest.Line) error) error {
	clusters, exports := logicalClusters(s.prefix), apiExports(s.prefix)
	err := s.page(ctx, clusters, keysPerRequest, func(key string, _ []byte) error {
		if name, ok := logicalClusterOf(key, clusters); ok {
			return visit(manifest.Line{LogicalCluster: name})
		}
		return nil
	}, clientv3.WithKeysOnly())
	if err != nil {
		return fmt.Errorf("listing the logical clusters: %w", err)
	}
	err = s.page(ctx, exports, objectsPerRequest, func(key string, value []byte) error {
		var export struct {
			Status struct {
				IdentityHash string `json:"identityHash"`
			} `json:"status"`
		}
		// An export that is encrypted in etcd cannot be read here; the identities are only for people to compare.
		if json.Unmarshal(value, &export) != nil || export.Status.IdentityHash == "" {
			return nil
		}
		return visit(manifest.Line{APIExport: strings.TrimPrefix(key, exports), IdentityHash: export.Status.IdentityHash})
	})
	if err != nil {
		return fmt.Errorf("listing the identities of exports: %w", err)
	}
	return nil
}

// page reads the keys below a prefix as of RevisionFrom.
func (s *Stream) page(ctx context.Context, prefix string, limit int64, visit func(key string, value []byte) error, options ...clientv3.OpOption) error {
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	options = append(options, clientv3.WithRange(end), clientv3.WithLimit(limit), clientv3.WithRev(s.RevisionFrom))
	for {
		timed, cancel := context.WithTimeout(ctx, requestTimeout)
		response, err := s.client.Get(timed, from, options...)
		cancel()
		if err != nil {
			return err
		}
		for _, kv := range response.Kvs {
			if err := visit(string(kv.Key), kv.Value); err != nil {
				return err
			}
		}
		if !response.More {
			return nil
		}
		from = string(response.Kvs[len(response.Kvs)-1].Key) + "\x00"
	}
}
