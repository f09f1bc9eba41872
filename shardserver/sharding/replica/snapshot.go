package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/internal/etcdlist"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// segment is the first part of the keys of a snapshot, where other keys have the API group. No API group can have this
	// name.
	segment = "~elsewhere"
	// syncedKey is stored in place of an object if the store of the resource is synced.
	syncedKey = "known"
	// snapshotInterval is the time between two writes of changes.
	snapshotInterval = time.Second
	// maxBatchOperations and maxBatchBytes keep transactions below etcd's default limits of 128 operations and 1.5 MiB. A
	// larger object is written alone.
	maxBatchOperations = 100
	maxBatchBytes      = 1 << 20
	// snapshotPageSize is how many objects one request reads.
	snapshotPageSize = 500
)

// SnapshotStore stores the snapshot of an Informer in etcd:
// "<prefix>/~elsewhere/<group>/<resource>/<shard>/<cluster>/<namespace or ->/<name>".
type SnapshotStore struct {
	Etcd *clientv3.Client
	// Prefix is the prefix of all keys of the shard, such as "/registry".
	Prefix string
}

// snapshotKey identifies an object in a snapshot. With the zero client.Key it is the mark that a resource is synced.
type snapshotKey struct {
	resource schema.GroupResource
	client.Key
}

// snapshotEntry is the value of an object in a snapshot.
type snapshotEntry struct {
	// CacheVersion is the version of the entry.
	CacheVersion string `json:"cacheVersion,omitempty"`
	// Object is the output of Encode.
	Object json.RawMessage `json:"object,omitempty"`
}

func (s *SnapshotStore) root() string { return path.Join("/", s.Prefix, segment) + "/" }

func (s *SnapshotStore) key(k snapshotKey) string {
	resource := s.root() + k.resource.Group + "/" + k.resource.Resource + "/"
	if k.Key == (client.Key{}) {
		return resource + syncedKey
	}
	namespace := k.Namespace
	if namespace == "" {
		namespace = "-"
	}
	return resource + strings.Join([]string{k.Shard, k.Cluster.String(), namespace, k.Name}, "/")
}

// parse is the inverse of key.
func (s *SnapshotStore) parse(key string) (snapshotKey, error) {
	parts := strings.SplitN(strings.TrimPrefix(key, s.root()), "/", 6)
	if len(parts) == 3 && parts[2] == syncedKey {
		return snapshotKey{resource: schema.GroupResource{Group: parts[0], Resource: parts[1]}}, nil
	}
	if len(parts) != 6 {
		return snapshotKey{}, fmt.Errorf("%q is no key of an object of another shard", key)
	}
	cluster, err := logicalcluster.ParseName(parts[3])
	if err != nil {
		return snapshotKey{}, fmt.Errorf("%q: %w", key, err)
	}
	namespace := parts[4]
	if namespace == "-" {
		namespace = ""
	}
	return snapshotKey{
		resource: schema.GroupResource{Group: parts[0], Resource: parts[1]},
		Key:      client.Key{Shard: parts[2], Cluster: cluster, Namespace: namespace, Name: parts[5]},
	}, nil
}

// read calls a function with every entry of the snapshot.
func (s *SnapshotStore) read(ctx context.Context, visit func(snapshotKey, snapshotEntry)) error {
	_, err := etcdlist.ReadValues(ctx, s.Etcd, s.root(), 0, snapshotPageSize, func(part []*mvccpb.KeyValue) error {
		for _, kv := range part {
			key, err := s.parse(string(kv.Key))
			if err != nil {
				return err
			}
			var value snapshotEntry
			if err := json.Unmarshal(kv.Value, &value); err != nil {
				return fmt.Errorf("decoding %s: %w", kv.Key, err)
			}
			visit(key, value)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the snapshot of objects of other shards: %w", err)
	}
	return nil
}

// snapshotBatch collects writes that fit into one transaction.
type snapshotBatch struct {
	store *SnapshotStore
	term  *Term
	// dirty are the objects to be written. commit removes what it has written.
	dirty map[snapshotKey]struct{}
	keys  []snapshotKey
	ops   []clientv3.Op
	bytes int
}

func (s *snapshotBatch) add(ctx context.Context, key snapshotKey, op clientv3.Op) error {
	size := len(op.KeyBytes()) + len(op.ValueBytes())
	if len(s.ops) == maxBatchOperations || s.bytes+size > maxBatchBytes {
		if err := s.commit(ctx); err != nil {
			return err
		}
	}
	s.keys, s.ops, s.bytes = append(s.keys, key), append(s.ops, op), s.bytes+size
	return nil
}

func (s *snapshotBatch) commit(ctx context.Context) error {
	if len(s.ops) == 0 {
		return nil
	}
	response, err := s.store.Etcd.Txn(ctx).If(s.term.holds()).Then(s.ops...).Commit()
	if err == nil && !response.Succeeded {
		err = ErrTermEnded
	}
	if len(s.keys) == 1 && (errors.Is(err, rpctypes.ErrRequestTooLarge) || errors.Is(err, rpctypes.ErrGRPCRequestTooLarge)) {
		// Retrying would block all other writes forever. A start without the cache lacks this object.
		klog.FromContext(ctx).Error(err, "An object of another shard is too large for the snapshot", "resource", s.keys[0].resource, "object", s.keys[0].Key)
		err = nil
	}
	if err != nil {
		return fmt.Errorf("writing the snapshot of objects of other shards: %w", err)
	}
	for _, key := range s.keys {
		delete(s.dirty, key)
	}
	s.keys, s.ops, s.bytes = nil, nil, 0
	return nil
}
