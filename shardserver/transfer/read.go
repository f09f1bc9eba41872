package transfer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Manifest returns the keys of a logical cluster and their versions, ordered by storage and name, at one revision of etcd, which it also
// returns. It reads no values. After etcd has compacted the revision, Manifest fails with rpctypes.ErrCompacted and can
// be called again.
func (t *Transfer) Manifest(ctx context.Context, cluster logicalcluster.Name) (versions []Version, revision int64, err error) {
	versions, revision, err = t.manifest(ctx, cluster)
	if err != nil {
		return nil, 0, fmt.Errorf("listing the keys of logical cluster %q: %w", cluster, err)
	}
	return versions, revision, nil
}

func (t *Transfer) manifest(ctx context.Context, cluster logicalcluster.Name) (versions []Version, revision int64, err error) {
	resources, revision, err := t.resourcesOf(ctx, cluster)
	if err != nil {
		return nil, 0, err
	}
	for _, resource := range resources {
		prefix := t.clusterPrefix(cluster, resource)
		err := t.eachKey(ctx, prefix, revision, true, func(page []*mvccpb.KeyValue) error {
			for _, kv := range page {
				versions = append(versions, Version{Key: Key{resource, string(kv.Key[len(prefix):])}, ModRevision: kv.ModRevision})
			}
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
	}
	return versions, revision, nil
}

// resourcesOf returns the storages in which a logical cluster has keys, in order, and the revision of that.
func (t *Transfer) resourcesOf(ctx context.Context, cluster logicalcluster.Name) (resources []string, revision int64, err error) {
	counts, revision, err := t.countsOf(ctx, cluster, nil)
	return slices.Sorted(maps.Keys(counts)), revision, err
}

// countsOf returns the number of keys that a logical cluster has in each storage in which it has any, and the revision of that.
func (t *Transfer) countsOf(ctx context.Context, cluster logicalcluster.Name, also []string) (map[string]int64, int64, error) {
	if err := checkCluster(cluster); err != nil {
		return nil, 0, err
	}
	storages, err := t.cfg.Storages(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("finding the storages: %w", err)
	}
	storages = append(slices.Clone(storages), also...)
	slices.Sort(storages)
	counts, revision := map[string]int64{}, int64(0)
	for batch := range slices.Chunk(slices.Compact(storages), opsPerRequest) {
		ops := make([]clientv3.Op, 0, len(batch))
		for _, storage := range batch {
			ops = append(ops, clientv3.OpGet(t.clusterPrefix(cluster, storage), clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithRev(revision)))
		}
		response, err := t.cfg.Client.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return nil, 0, err
		}
		if revision == 0 {
			revision = response.Header.Revision
		}
		for i, result := range response.Responses {
			if count := result.GetResponseRange().Count; count > 0 {
				counts[batch[i]] = count
			}
		}
	}
	return counts, revision, nil
}

// eachKey visits the keys below a prefix in pages, with values unless keysOnly. 0 is the latest revision at the time of each page.
func (t *Transfer) eachKey(ctx context.Context, prefix string, revision int64, keysOnly bool, visit func(page []*mvccpb.KeyValue) error) error {
	options := []clientv3.OpOption{clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithRev(revision), clientv3.WithLimit(keysPerPage)}
	if keysOnly {
		options = append(options, clientv3.WithKeysOnly())
	}
	for from := prefix; ; {
		page, err := t.cfg.Client.Get(ctx, from, options...)
		if err != nil {
			return err
		}
		if err := visit(page.Kvs); err != nil || !page.More {
			return err
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

// eachEntry visits the keys below a prefix, with their values, at one revision, which it returns. Pages become as large as
// bytesPerRequest, unless a few large values follow many small ones.
func (t *Transfer) eachEntry(ctx context.Context, prefix string, visit func(*mvccpb.KeyValue) error) (revision int64, err error) {
	end := clientv3.GetPrefixRangeEnd(prefix)
	for from, size := prefix, 1; ; {
		page, err := t.cfg.Client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithRev(revision), clientv3.WithLimit(int64(size)))
		if err != nil {
			return 0, err
		}
		if revision == 0 {
			revision = page.Header.Revision
		}
		bytes := 1
		for _, kv := range page.Kvs {
			bytes += len(kv.Value)
			if err := visit(kv); err != nil {
				return 0, err
			}
		}
		if !page.More {
			return revision, nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		size = max(1, min(2*size, valuesPerRequest, len(page.Kvs)*bytesPerRequest/bytes))
	}
}

// eachValue reads keys and visits each by its index, with nil for a key that does not exist, until visit returns false. Requests become
// as large as bytesPerRequest, unless a few large values follow many small ones.
func (t *Transfer) eachValue(ctx context.Context, keys []string, revision int64, visit func(i int, kv *mvccpb.KeyValue) (bool, error)) error {
	for next, size := 0, 1; next < len(keys); {
		batch := keys[next:min(next+size, len(keys))]
		ops := make([]clientv3.Op, 0, len(batch))
		for _, key := range batch {
			ops = append(ops, clientv3.OpGet(key, clientv3.WithRev(revision)))
		}
		response, err := t.cfg.Client.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return err
		}
		bytes := 1
		for i, result := range response.Responses {
			var kv *mvccpb.KeyValue
			if found := result.GetResponseRange().Kvs; len(found) == 1 {
				kv = found[0]
				bytes += len(kv.Value)
			}
			if more, err := visit(next+i, kv); err != nil || !more {
				return err
			}
		}
		next += len(batch)
		size = max(1, min(2*size, valuesPerRequest, len(batch)*bytesPerRequest/bytes))
	}
	return nil
}

// Read returns the values of keys at a revision; 0 is the latest one. A key that does not exist is left out. What exceeds MaxReadKeys or
// MaxReadBytes is the rest, to be read by another call.
func (t *Transfer) Read(ctx context.Context, cluster logicalcluster.Name, keys []Key, revision int64) (entries []Entry, rest []Key, err error) {
	entries, rest, err = t.read(ctx, cluster, keys, revision)
	if err != nil {
		return nil, nil, fmt.Errorf("reading logical cluster %q: %w", cluster, err)
	}
	return entries, rest, nil
}

func (t *Transfer) read(ctx context.Context, cluster logicalcluster.Name, keys []Key, revision int64) (entries []Entry, rest []Key, err error) {
	if err := checkCluster(cluster); err != nil {
		return nil, nil, err
	}
	storages, err := t.cfg.Storages(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("finding the storages: %w", err)
	}
	full := make([]string, 0, min(len(keys), MaxReadKeys))
	for _, key := range keys[:min(len(keys), MaxReadKeys)] {
		if err := checkKey(key); err != nil {
			return nil, nil, err
		}
		if !slices.Contains(storages, key.Resource) {
			return nil, nil, fmt.Errorf("this shard has no storage %s", key.Resource)
		}
		full = append(full, t.clusterKey(cluster, key))
	}
	expiries := map[int64]time.Time{}
	done, bytes := 0, 0
	err = t.eachValue(ctx, full, revision, func(i int, kv *mvccpb.KeyValue) (bool, error) {
		if kv == nil {
			done = i + 1
			return true, nil
		}
		if bytes > 0 && bytes+len(kv.Value) > MaxReadBytes {
			return false, nil
		}
		plaintext, err := t.decrypt(ctx, keys[i].Resource, kv)
		if err != nil {
			return false, err
		}
		expires, err := t.expiry(ctx, kv.Lease, expiries)
		if err != nil {
			return false, err
		}
		entries = append(entries, Entry{Version: Version{keys[i], kv.ModRevision}, Value: plaintext, Expires: expires})
		bytes += len(kv.Value)
		done = i + 1
		// The next value probably has the same size: reading it in vain would double the load of large objects.
		return bytes+len(kv.Value) <= MaxReadBytes, nil
	})
	return entries, keys[done:], err
}

// decrypt returns the value of a key of a storage.
func (t *Transfer) decrypt(ctx context.Context, resource string, kv *mvccpb.KeyValue) ([]byte, error) {
	plaintext, _, err := t.transformer(resource).TransformFromStorage(ctx, kv.Value, value.DefaultContext(kv.Key))
	if err != nil {
		return nil, fmt.Errorf("decrypting a value of %s: %w", resource, err)
	}
	return plaintext, nil
}

// encrypt returns the value to store at a key.
func (t *Transfer) encrypt(ctx context.Context, resource, key string, plaintext []byte) ([]byte, error) {
	encrypted, err := t.transformer(resource).TransformToStorage(ctx, plaintext, value.DefaultContext(key))
	if err != nil {
		return nil, fmt.Errorf("encrypting a value of %s: %w", resource, err)
	}
	return encrypted, nil
}

// Decode returns a value as it was stored at a key of a logical cluster of this shard before, such as that of a backup, without the encryption.
func (t *Transfer) Decode(ctx context.Context, cluster logicalcluster.Name, key Key, stored []byte) ([]byte, error) {
	if err := errors.Join(checkCluster(cluster), checkKey(key)); err != nil {
		return nil, err
	}
	return t.decrypt(ctx, key.Resource, &mvccpb.KeyValue{Key: []byte(t.clusterKey(cluster, key)), Value: stored})
}

// Values passes the values that this shard has of keys to a function by their indexes, as of now. It is for what a Writer has written: the shard may not
// know the storages yet. A key that does not exist is an error.
func (t *Transfer) Values(ctx context.Context, cluster logicalcluster.Name, keys []Key, visit func(i int, plaintext []byte) error) error {
	full := make([]string, len(keys))
	for i, key := range keys {
		if err := errors.Join(checkCluster(cluster), checkKey(key)); err != nil {
			return err
		}
		full[i] = t.clusterKey(cluster, key)
	}
	return t.eachValue(ctx, full, 0, func(i int, kv *mvccpb.KeyValue) (bool, error) {
		if kv == nil {
			return false, fmt.Errorf("a key of %s is missing", keys[i].Resource)
		}
		plaintext, err := t.decrypt(ctx, keys[i].Resource, kv)
		if err != nil {
			return false, err
		}
		return true, visit(i, plaintext)
	})
}
