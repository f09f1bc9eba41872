package snapshot

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"

	"github.com/atoll-dev/atoll/internal/reservedkeys"
)

// Owner is the owner of the keys of the shard that is restored (package etcdowner).
type Owner struct {
	// Prefix is that of the keys that the owner reads. A backup with another one is refused, because the owner would start empty; "" accepts any.
	Prefix string
	// Name is the owner that the restored keys must have; "" accepts any, and leaves it.
	Name string
	// TakeOver confirms that the owner that is found does not run any more, and gives its keys to Name.
	TakeOver bool
}

// CheckPrefix refuses a backup of another prefix.
func (o Owner) CheckPrefix(saved string) error {
	if o.Prefix == "" || path.Join("/", o.Prefix) == path.Join("/", saved) {
		return nil
	}
	return fmt.Errorf("its keys have the prefix %s, and are to be restored for the prefix %s: a server with another prefix does not find them, and starts empty", saved, o.Prefix)
}

// changes returns the values of keys to write.
func (o Owner) changes(prefix string, reserved map[string]*mvccpb.KeyValue) (map[string]string, error) {
	out := map[string]string{}
	found := reserved[reservedkeys.Owner(prefix)]
	if o.Name == "" || found == nil || string(found.Value) == o.Name {
		return out, nil
	}
	if !o.TakeOver {
		return nil, fmt.Errorf("its keys belong to %q, and are to be restored for %q: two installations must not live on one backup. Take them over if the first one does not run any more, and never will", found.Value, o.Name)
	}
	// A cache that the shard embeds has another prefix and the same owner.
	for key, kv := range reserved {
		if string(kv.Value) == string(found.Value) {
			out[key] = o.Name
		}
	}
	return out, nil
}

// Mark writes into a snapshot file of this state that its keys were restored from a backup (package restoremark), and the owner. It removes the
// hash that etcd appends, so the file is to be checked before.
func (s *State) Mark(file, prefix string, owner Owner, backup string) error {
	changes, err := owner.changes(prefix, s.reserved)
	if err != nil {
		return err
	}
	changes[reservedkeys.Restored(prefix)] = backup
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	// The size of a database is a multiple of that of its pages.
	const sector = 512
	if info.Size()%sector == sha256.Size {
		if err := os.Truncate(file, info.Size()-sha256.Size); err != nil {
			return err
		}
	}
	// As etcd opens it.
	db, err := bolt.Open(file, 0o600, &bolt.Options{NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return fmt.Errorf("opening the snapshot: %w", err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		keys := tx.Bucket(schema.Key.Name())
		if keys == nil {
			return errors.New("the snapshot contains no keys of etcd")
		}
		at := mvcc.Revision{Main: s.Latest + 1}
		for _, key := range slices.Sorted(maps.Keys(changes)) { // all members write the same
			kv := &mvccpb.KeyValue{Key: []byte(key), Value: []byte(changes[key]), CreateRevision: at.Main, ModRevision: at.Main, Version: 1}
			if before := s.reserved[key]; before != nil {
				kv.CreateRevision, kv.Version = before.CreateRevision, before.Version+1
			}
			content, err := proto.Marshal(kv)
			if err != nil {
				return err
			}
			if err := keys.Put(mvcc.RevToBytes(at, mvcc.NewRevBytes()), content); err != nil {
				return err
			}
			at.Sub++
		}
		return nil
	})
	return errors.Join(err, db.Close())
}
