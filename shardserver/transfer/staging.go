package transfer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// record is what is stored about a staged key besides its value. The key in it makes the transaction that stages a value larger than the
// one that activates it: a value that etcd accepts here cannot be too large there, when the move cannot be aborted any more.
type record struct {
	Version
	Expires time.Time `json:"expires,omitzero"`
}

// Staging names a staging area.
type Staging struct {
	Cluster logicalcluster.Name
	UID     types.UID
}

// Stage stores entries, or replaces them. They are from Read of the origin, whose shard is not trusted: entries that are no keys of the
// logical cluster, or of storages that this shard cannot have, are refused.
func (t *Transfer) Stage(ctx context.Context, cluster logicalcluster.Name, uid types.UID, entries []Entry) error {
	if err := t.stage(ctx, cluster, uid, entries); err != nil {
		return fmt.Errorf("staging logical cluster %q: %w", cluster, err)
	}
	return nil
}

func (t *Transfer) stage(ctx context.Context, cluster logicalcluster.Name, uid types.UID, entries []Entry) error {
	place, err := t.staging(cluster, uid)
	if err != nil {
		return err
	}
	storages, err := t.cfg.Storages(ctx)
	if err != nil {
		return fmt.Errorf("finding the storages: %w", err)
	}
	var ops []clientv3.Op
	bytes := 0
	flush := func() error {
		if len(ops) == 0 {
			return nil
		}
		_, err := t.cfg.Client.Txn(ctx).Then(ops...).Commit()
		ops, bytes = nil, 0
		return err
	}
	staged := make(map[Key]bool, len(entries))
	for _, entry := range entries {
		if err := checkKey(entry.Key); err != nil {
			return err
		}
		if err := checkStorage(entry.Resource, storages); err != nil {
			return err
		}
		if staged[entry.Key] {
			return fmt.Errorf("a key of %s is there twice", entry.Resource)
		}
		staged[entry.Key] = true
		version, err := json.Marshal(record{Version: entry.Version, Expires: entry.Expires})
		if err != nil {
			return fmt.Errorf("encoding a record of %s: %w", entry.Resource, err)
		}
		key := place.value(entry.Key)
		encrypted, err := t.encrypt(ctx, entry.Resource, key, entry.Value)
		if err != nil {
			return err
		}
		size := 2*len(key) + len(version) + len(encrypted)
		if len(ops)+2 > opsPerRequest || bytes+size > bytesPerRequest {
			if err := flush(); err != nil {
				return err
			}
		}
		ops = append(ops, clientv3.OpPut(place.version(entry.Key), string(version)), clientv3.OpPut(key, string(encrypted)))
		bytes += size
	}
	return flush()
}

// Unstage deletes staged keys.
func (t *Transfer) Unstage(ctx context.Context, cluster logicalcluster.Name, uid types.UID, keys []Key) error {
	place, err := t.staging(cluster, uid)
	if err != nil {
		return fmt.Errorf("unstaging keys of logical cluster %q: %w", cluster, err)
	}
	for batch := range slices.Chunk(keys, opsPerRequest/2) {
		ops := make([]clientv3.Op, 0, 2*len(batch))
		for _, key := range batch {
			ops = append(ops, clientv3.OpDelete(place.version(key)), clientv3.OpDelete(place.value(key)))
		}
		if _, err := t.cfg.Client.Txn(ctx).Then(ops...).Commit(); err != nil {
			return fmt.Errorf("unstaging keys of logical cluster %q: %w", cluster, err)
		}
	}
	return nil
}

// Staged returns what is staged, with the versions of the origin. It reads no values.
func (t *Transfer) Staged(ctx context.Context, cluster logicalcluster.Name, uid types.UID) ([]Version, error) {
	var versions []Version
	err := t.eachRecords(ctx, cluster, uid, func(_ staging, records []record) error {
		for _, r := range records {
			versions = append(versions, r.Version)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the staged keys of logical cluster %q: %w", cluster, err)
	}
	return versions, nil
}

// eachRecords visits the records of a staging area in pages, ordered by storage and name.
func (t *Transfer) eachRecords(ctx context.Context, cluster logicalcluster.Name, uid types.UID, visit func(staging, []record) error) error {
	place, err := t.staging(cluster, uid)
	if err != nil {
		return err
	}
	return t.eachKey(ctx, place.versions(), 0, false, func(page []*mvccpb.KeyValue) error {
		records := make([]record, len(page))
		for i, kv := range page {
			if err := json.Unmarshal(kv.Value, &records[i]); err != nil || string(kv.Key) != place.version(records[i].Key) {
				return fmt.Errorf("the record at a staged key is invalid")
			}
		}
		return visit(place, records)
	})
}

// eachStaged visits what is staged, decrypted, ordered by storage and name.
func (t *Transfer) eachStaged(ctx context.Context, cluster logicalcluster.Name, uid types.UID, visit func(record, []byte) error) error {
	return t.eachRecords(ctx, cluster, uid, func(place staging, records []record) error {
		keys := make([]string, len(records))
		for i, r := range records {
			keys[i] = place.value(r.Key)
		}
		return t.eachValue(ctx, keys, 0, func(i int, kv *mvccpb.KeyValue) (bool, error) {
			if kv == nil {
				return false, fmt.Errorf("a staged value of %s is missing", records[i].Resource)
			}
			plaintext, err := t.decrypt(ctx, records[i].Resource, kv)
			if err != nil {
				return false, err
			}
			return true, visit(records[i], plaintext)
		})
	})
}

// Stagings returns the staging areas that have keys. Its cost follows their number.
func (t *Transfer) Stagings(ctx context.Context) ([]Staging, error) {
	root := t.incomingPrefix()
	var found []Staging
	for from, end := root, clientv3.GetPrefixRangeEnd(root); ; {
		page, err := t.cfg.Client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(1))
		if err != nil {
			return nil, fmt.Errorf("listing staged logical clusters: %w", err)
		}
		if len(page.Kvs) == 0 {
			return found, nil
		}
		segments := strings.SplitN(string(page.Kvs[0].Key[len(root):]), "/", 3)
		cluster, err := logicalcluster.ParseName(segments[0])
		if err != nil || len(segments) < 3 {
			return nil, fmt.Errorf("listing staged logical clusters: a key below %s has another form", root)
		}
		found = append(found, Staging{cluster, types.UID(segments[1])})
		from = clientv3.GetPrefixRangeEnd(root + segments[0] + "/" + segments[1] + "/")
	}
}

// DropStaged deletes a staging area. One that does not exist is no error.
func (t *Transfer) DropStaged(ctx context.Context, cluster logicalcluster.Name, uid types.UID) error {
	place, err := t.staging(cluster, uid)
	if err != nil {
		return fmt.Errorf("deleting the staged keys of logical cluster %q: %w", cluster, err)
	}
	// Records go first, so that none is left without a value if this ends in between.
	for _, prefix := range []string{place.versions(), place.values()} {
		err := t.eachKey(ctx, prefix, 0, true, func(page []*mvccpb.KeyValue) error {
			if len(page) == 0 {
				return nil
			}
			_, err := t.cfg.Client.Delete(ctx, string(page[0].Key), clientv3.WithRange(string(page[len(page)-1].Key)+"\x00"))
			return err
		})
		if err != nil {
			return fmt.Errorf("deleting the staged keys of logical cluster %q: %w", cluster, err)
		}
	}
	return nil
}

// DropAllStagedExcept deletes all staging areas that are not kept: what ended migrations have left.
func (t *Transfer) DropAllStagedExcept(ctx context.Context, keep func(Staging) bool) error {
	stagings, err := t.Stagings(ctx)
	if err != nil {
		return err
	}
	for _, found := range stagings {
		if keep(found) {
			continue
		}
		if err := t.DropStaged(ctx, found.Cluster, found.UID); err != nil {
			return err
		}
	}
	return nil
}
