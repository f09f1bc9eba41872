package sharedindex

import (
	"context"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/atoll-dev/atoll/internal/etcdlist"
)

const (
	// maxOpsPerRequest and maxBytesPerRequest are below the default limits of etcd (128 operations, 1.5 MiB).
	maxOpsPerRequest   = 100
	maxBytesPerRequest = 1 << 20
	// requestTimeout bounds one request to etcd.
	requestTimeout = 30 * time.Second
)

// keyLayout is the layout of the index's keys below a prefix.
type keyLayout struct{ prefix string }

// rootPrefix is the prefix of all keys, shard the prefix of the keys of one shard.
func (l keyLayout) rootPrefix() string              { return l.prefix + "/" }
func (l keyLayout) shardPrefix(shard string) string { return l.prefix + "/" + shard + "/" }

// split returns the shard of a key, and the path of the key below the prefix of the shard.
func (l keyLayout) split(key string) (shard, path string, ok bool) {
	rest, ok := strings.CutPrefix(key, l.rootPrefix())
	if !ok {
		return "", "", false
	}
	shard, path, ok = strings.Cut(rest, "/")
	return shard, path, ok && shard != "" && path != ""
}

func get(ctx context.Context, client *clientv3.Client, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return client.Get(ctx, key, options...)
}

// list calls each for all keys below a prefix as of a revision; 0 is the latest.
func list(ctx context.Context, client *clientv3.Client, prefix string, revision int64, each func(key string, value []byte)) error {
	return etcdlist.Read(ctx, client, prefix, revision, func(part []*mvccpb.KeyValue) error {
		for _, kv := range part {
			each(string(kv.Key), kv.Value)
		}
		return nil
	})
}
